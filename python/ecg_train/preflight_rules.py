"""From the facts of all ranks to a verdict: no input, no output, so that every rule can be tested with made facts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

OK, WARN, FAIL = "ok", "warn", "FAIL"
LARGEST_SKEW = 2.0  # seconds between the clocks of two nodes
LEAST_SHARED = 64 << 20  # bytes in /dev/shm: what gloo, NCCL and MPI need is far less


@dataclass(frozen=True)
class Asked:
    """What the preflight was asked to find."""

    world: int
    nodes: int
    cores: float
    """Cores that each rank should have; 0: not said."""


@dataclass(frozen=True)
class Finding:
    """One row of the table."""

    check: str
    value: str
    wanted: str
    verdict: str
    advice: str = ""


def judge(ranks: list[dict[str, Any]], asked: Asked) -> list[Finding]:
    """Return the findings over the facts of all ranks, each a dict as preflight_facts makes them."""
    hosts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rank in ranks:
        hosts[rank["host"]].append(rank)
    found = [_world(ranks, asked), _nodes(hosts, asked), _devices(hosts), _cores(ranks, asked), _overlap(hosts)]
    found.append(_transport(ranks, len(hosts)))
    shared = min((r["shared_memory"] for r in ranks if r["shared_memory"] is not None), default=None)
    if shared is not None:
        found.append(
            Finding(
                "shared memory",
                f"{shared >> 20} MiB free",
                f"{LEAST_SHARED >> 20} MiB",
                OK if shared >= LEAST_SHARED else FAIL,
                "" if shared >= LEAST_SHARED else "other jobs left files in /dev/shm; ask for another node",
            )
        )
    found.extend(_gpus(ranks))
    found.append(_same("image", ranks, "image", "build or copy one image for all nodes: make image"))
    found.append(_same("package", ranks, "code", "the nodes see different checkouts"))
    found.append(_data(ranks))
    found.append(_written(ranks))
    skew = max(r["clock"] for r in ranks) - min(r["clock"] for r in ranks)
    found.append(
        Finding(
            "clock skew",
            f"{skew:.2f} s",
            f"{LARGEST_SKEW:g} s",
            OK if skew <= LARGEST_SKEW else WARN,
            "" if skew <= LARGEST_SKEW else "the clocks of the nodes differ; times between nodes mean little",
        )
    )
    return found


def verdict(findings: Iterable[Finding]) -> str:
    """Return the worst of the verdicts."""
    seen = {finding.verdict for finding in findings}
    return FAIL if FAIL in seen else WARN if WARN in seen else OK


def _world(ranks: list[dict[str, Any]], asked: Asked) -> Finding:
    numbers = sorted(r["rank"] for r in ranks)
    sizes = {r["world"] for r in ranks}
    fine = numbers == list(range(asked.world)) and sizes == {asked.world}
    return Finding(
        "world size",
        str(len(numbers)),
        str(asked.world),
        OK if fine else FAIL,
        "" if fine else "launcher and framework do not see each other: srun --mpi=list, ECG_MPI",
    )


def _nodes(hosts: dict[str, list], asked: Asked) -> Finding:
    shape = " ".join(f"{host}:{len(members)}" for host, members in sorted(hosts.items()))
    fine = len(hosts) == asked.nodes and len({len(members) for members in hosts.values()}) == 1
    return Finding(
        "nodes",
        shape,
        f"{asked.nodes} with equal shares",
        OK if fine else FAIL,
        "" if fine else "ranks are spread wrongly: --nodes and --ntasks-per-node",
    )


def _devices(hosts: dict[str, list]) -> Finding:
    twice = []
    for host, members in sorted(hosts.items()):
        gpus = Counter(r["uuid"] or r["device"] for r in members if r["device"] != "cpu")
        twice.extend(f"{host} {device}" for device, n in gpus.items() if n > 1)
    kinds = sorted({r["device"].split(":")[0] for members in hosts.values() for r in members})
    if twice:
        return Finding(
            "device per rank",
            "shared: " + ", ".join(twice),
            "one each",
            FAIL,
            "each rank must see all GPUs of its node: --gpu-bind=none",
        )
    if len(kinds) > 1:
        return Finding("device per rank", " and ".join(kinds), "one kind", FAIL, "some nodes show no GPU")
    return Finding("device per rank", f"one {kinds[0]} each" if kinds != ["cpu"] else "cpu", "one each", OK)


def _cores(ranks: list[dict[str, Any]], asked: Asked) -> Finding:
    fewest = min(len(r["cores"]) for r in ranks)
    least = asked.cores or 1
    fine = fewest >= least
    return Finding(
        "cores per rank",
        str(fewest),
        f"{least:g}",
        OK if fine else FAIL,
        "" if fine else "srun gives fewer cores than asked: --cpus-per-task on srun itself",
    )


def _overlap(hosts: dict[str, list]) -> Finding:
    shared = [
        host
        for host, members in sorted(hosts.items())
        if any(n > 1 for n in Counter(core for r in members for core in r["cores"]).values())
    ]
    if shared:
        return Finding(
            "own cores",
            "shared on " + " ".join(shared),
            "not shared",
            WARN,
            "ranks compete for cores; their times are no measurement",
        )
    return Finding("own cores", "not shared", "not shared", OK)


def _transport(ranks: list[dict[str, Any]], hosts: int) -> Finding:
    kinds = sorted({r["transport"] or "unknown" for r in ranks})
    value = "; ".join(kinds[:3])
    if hosts > 1 and any("Socket" in kind for kind in kinds):
        return Finding(
            "transport",
            value,
            "a fast network",
            WARN,
            "NCCL fell back to sockets between nodes: libraries of the fabric in the image?",
        )
    if any("127.0.0." in kind for kind in kinds) and hosts > 1:
        return Finding(
            "transport", value, "a network between nodes", FAIL, "the meeting address is loopback; set ECG_HOST_SUFFIX"
        )
    return Finding("transport", value, "", OK if kinds != ["unknown"] else WARN)


def _gpus(ranks: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for name, most, label, unit in (
        ("clock_mhz", "max_clock_mhz", "GPU clock", "MHz"),
        ("power_cap_w", "max_power_w", "power cap", "W"),
    ):
        values = [r[name] for r in ranks if r[name] is not None]
        if values:
            top = max((r[most] for r in ranks if r[most] is not None), default=None)
            capped = name == "power_cap_w" and top is not None and min(values) < top
            found.append(
                Finding(
                    label,
                    f"{min(values):g} to {max(values):g} {unit}",
                    f"{top:g} {unit}" if top else "",
                    WARN if capped else OK,
                    "a GPU is capped; rows of capped and other nodes do not compare" if capped else "",
                )
            )
    return found


def _same(label: str, ranks: list[dict[str, Any]], name: str, advice: str) -> Finding:
    seen = sorted({str(r[name]) if r[name] else "none" for r in ranks})
    shown = " ".join(text[:19] for text in seen[:3])
    return Finding(label, shown, "the same on all", OK if len(seen) == 1 else FAIL, "" if len(seen) == 1 else advice)


def _data(ranks: list[dict[str, Any]]) -> Finding:
    broken = [r for r in ranks if r["dataset"] is None]
    if broken:
        where = " ".join(sorted({r["host"] for r in broken}))
        return Finding(
            "data", f"not readable on {where}", "readable on all", FAIL, str(broken[0]["dataset_error"])[:160]
        )
    return _same("data", ranks, "dataset", "the nodes see different data sets")


def _written(ranks: list[dict[str, Any]]) -> Finding:
    lost = [str(r["rank"]) for r in ranks if not r["written"]]
    return Finding(
        "results",
        "shared by all" if not lost else f"not from rank {' '.join(lost)}",
        "shared by all",
        OK if not lost else FAIL,
        "" if not lost else "ECG_RESULTS must be on a file system that all nodes can write",
    )


def table(findings: list[Finding]) -> str:
    """Return the findings as text."""
    rows = [
        ("check", "value", "wanted", "", "what to do"),
        *((f.check, f.value, f.wanted, f.verdict, f.advice) for f in findings),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    )
