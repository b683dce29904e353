"""The rows of the scaling tables: repeats put together, divided by a named baseline.

A row is one framework at one number of workers and nodes. Only runs that ended well and were timed enter its
numbers; the others are counted in its status.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from analysis import metrics
from analysis.compare import Group, Work, line
from analysis.runs import OK, Run

SELF = "self"
TIMED = (
    "step_time_s", "step_time_p10_s", "step_time_p90_s", "data_time_s", "data_share", "data_skew_s", "imbalance",
    "edge_time_s", "calibration_s", "calibration_mean_s", "exposed_s", "exposed_share",
)  # fmt: skip


def label_of(run: Run) -> str:
    zero = run.identity.get("zero_stage")
    name = str(run.identity.get("framework") or "unstated")
    return name if zero is None else f"{name} z{zero}"


def timed(run: Run) -> bool:
    """Say whether a run may enter a quotient."""
    return (
        run.status == OK
        and run.identified
        and bool(run.timing.get("step_time_s"))
        and bool(run.identity.get("tokens_per_step"))
    )


def tokens_per_s(run: Run) -> float:
    return metrics.throughput(run.identity["tokens_per_step"], run.timing["step_time_s"])


def median(values: list[Any]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.median(known)) if known else None


class Row:
    """Repeats of one framework at one size; `good` are those that may be divided."""

    def __init__(self, label: str, key: tuple, runs: list[Run]):
        self.label, self.key, self.runs = label, key, runs
        self.world: int = runs[0].identity["world"]
        self.nodes = runs[0].identity.get("nodes")
        self.good = [r for r in runs if timed(r)]
        self.rates = [tokens_per_s(r) for r in self.good]

    def timing(self, name: str) -> float | None:
        return median([r.timing.get(name) for r in self.good])


def _lines(group: Group) -> dict[tuple, list[Row]]:
    """Return rows by line, smallest size first. A run that never stated its version joins the line of its
    framework.
    """
    keys = {r.run: line(r.identity) for r in group.runs}
    full = {(k[0], k[3]): k for r in group.runs if r.identified for k in [keys[r.run]]}
    names = {k[0]: k for k in full.values()}
    for r in group.runs:
        if not r.identified:
            k = keys[r.run]
            keys[r.run] = full.get((k[0], k[3])) or names.get(k[0]) or k
    labels: dict[str, set[tuple]] = {}
    for r in group.runs:
        labels.setdefault(label_of(r), set()).add(keys[r.run])
    cells: dict[tuple, dict[tuple, list[Run]]] = {}
    for r in group.runs:
        nodes = r.identity.get("nodes")
        cells.setdefault(keys[r.run], {}).setdefault((r.world, nodes or 0), []).append(r)
    out = {}
    for key, sizes in cells.items():
        known = next((r for runs in sizes.values() for r in runs if r.identified), None)
        first = known or next(iter(sizes.values()))[0]
        label = label_of(first)
        if len(labels.get(label, ())) > 1:  # two versions or backends of one framework
            label += f" {first.identity.get('framework_version')}/{first.identity.get('backend')}"
        out[key] = [Row(label, key, sizes[size]) for size in sorted(sizes)]
    return dict(sorted(out.items(), key=lambda item: (item[1][0].label != "serial", item[1][0].label)))


def baseline_of(rows: list[Row]) -> Row | None:
    """Return the smallest size that was measured."""
    return next((row for row in rows if row.good), None)


def table(group: Group, work: dict[str, Work], baseline: str = SELF) -> dict[str, Any]:
    """Return the group's rows as dictionaries of raw numbers (seconds, tokens/s, shares), and what they are
    divided by.
    """
    lines = _lines(group)
    named = {rows[0].label: baseline_of(rows) for rows in lines.values()}
    common = next((row for label, row in named.items() if label.split(" ")[0] == baseline), None)
    serial = next((rows[0] for rows in lines.values() if rows[0].label.split(" ")[0] == "serial"), None)
    serial = serial if serial is not None and serial.good and serial.world == 1 else None
    rows, bases = [], {}
    for members in lines.values():
        base = baseline_of(members) if baseline == SELF else common
        if base is not None:
            bases[members[0].label] = f"{base.label} at {base.world}"
        for row in members:
            peers = [r for other in lines.values() for r in other if r.good and _size(r) == _size(row)]
            fastest = max(peers, key=lambda r: float(np.median(r.rates))) if len(peers) > 1 else None
            rows.append(_numbers(row, group.scaling, base, serial, fastest) | _losses(row, work))
    kept = dict.fromkeys(bases.values())
    return {
        "group": group.name,
        "scaling": group.scaling,
        "experiment": {k: json.loads(v) for k, v in group.fields.items()},
        "baseline": bases,
        "baseline_text": ", ".join(kept)
        if kept
        else "none: no run of this group ended well with steps beyond its warm-up",
        "rows": rows,
    }


def _size(row: Row) -> tuple[int, Any]:
    return row.world, row.nodes


def _status(row: Row) -> str:
    counts = Counter(r.status for r in row.runs)
    return OK if set(counts) == {OK} else ", ".join(f"{n} {s}" for s, n in sorted(counts.items()) if s != OK)


def _numbers(row: Row, scaling: str, base: Row | None, serial: Row | None, fastest: Row | None) -> dict[str, Any]:
    p = row.world
    out: dict[str, Any] = {
        "framework": row.label,
        "world": p,
        "nodes": row.nodes,
        "runs": len(row.runs),
        "run_ids": [r.run for r in row.runs],
        "ok_runs": len(row.good),
        "status": _status(row),
        "synthetic": _shared([r.identity.get("synthetic") for r in row.runs]),
    }
    seen = [r.timing.get("workers_seen") for r in row.good]
    out["workers_seen"] = min((s for s in seen if s), default=None)
    out["measured_steps"] = sum(r.timing["measured_steps"] for r in row.good) or None
    for name in TIMED:
        out[name] = row.timing(name)
    drifts = [r for r in row.good if r.timing.get("trends")]
    known = any(r.timing.get("trends") is not None for r in row.good)
    out["trends"] = bool(drifts) if known else None
    out["drift"] = max((r.timing["drift"] for r in drifts), key=abs, default=None)
    if not row.good:
        return out
    rate = float(np.median(row.rates))
    flops = row.good[0].identity.get("flops_per_token")
    peak = row.good[0].identity.get("peak_flops_per_worker")
    out["tokens_per_s"] = rate
    out["model_flops_per_s"] = metrics.model_flops(flops, rate) if flops else None
    out["mfu"] = metrics.mfu(out["model_flops_per_s"], peak, p) if flops and peak else None
    interval = metrics.bootstrap([[r.timing["step_time_s"] for r in row.good]], lambda t: t)
    out["step_time_low_s"], out["step_time_high_s"] = interval or (None, None)
    if base is not None:
        out |= _against(row, base, scaling, rate)
    if serial is not None:
        out["speedup_vs_serial"] = metrics.speedup(rate, float(np.median(serial.rates)))
    if fastest is not None:
        out["fastest_peer"] = fastest.label
        if fastest is not row:
            ratio = metrics.bootstrap([row.rates, fastest.rates], lambda a, b: a / b)
            out["vs_fastest_low"], out["vs_fastest_high"] = ratio or (None, None)
            out["vs_fastest"] = metrics.verdict(ratio)
            out["vs_fastest_ratio"] = rate / float(np.median(fastest.rates))
    return out


def _against(row: Row, base: Row, scaling: str, rate: float) -> dict[str, Any]:
    """Divide a row by its baseline. The ideal is p / p0 with the same p0 everywhere."""
    p, p0 = row.world, base.world
    base_rate = float(np.median(base.rates))
    s = metrics.speedup(rate, base_rate)
    ideal = p / p0
    tokens = row.good[0].identity["tokens_per_step"]
    time_p = tokens / rate
    out = {
        "baseline": f"{base.label} at {p0}",
        "baseline_runs": [r.run for r in base.good],
        "ideal": ideal,
        "speedup": s,
        "efficiency": metrics.efficiency(s, p, p0),
        "overhead": metrics.overhead(
            p, time_p, tokens, p0, base.good[0].identity["tokens_per_step"] / base_rate,
            base.good[0].identity["tokens_per_step"],
        ),
    }  # fmt: skip
    if p0 == 1 and p > 1:
        strong = scaling == "strong"
        serial = metrics.karp_flatt(s, p) if strong else metrics.gustafson_fraction(s, p)
        law = metrics.amdahl_speedup if strong else metrics.gustafson_speedup
        out["serial_fraction"] = serial
        out["speedup_at_2p"] = law(serial, 2 * p) if serial is not None and serial >= 0 else None
    if row is base:
        return out
    interval = metrics.bootstrap([row.rates, base.rates], lambda a, b: a / b)
    out["speedup_low"], out["speedup_high"] = interval or (None, None)
    out["vs_baseline"] = metrics.verdict(interval)
    time_ideal = tokens / (base_rate * ideal)
    mean = row.timing("calibration_mean_s")
    out["contention"] = mean / time_ideal - 1 if mean is not None else None
    losses = metrics.waterfall(ideal, time_p, time_ideal, row.timing("calibration_s"), mean, row.timing("data_skew_s"))
    return out | {f"lost_to_{name}": loss for name, loss in losses.items()}


def _losses(row: Row, work: dict[str, Work]) -> dict[str, Any]:
    good = [r for r in row.runs if r.status == OK]
    answers = [work[r.run] for r in good or row.runs]
    order = {"no": 0, "reference": 1, "yes": 2, "-": 3}
    worst = min(answers, key=lambda w: (order[w.answer], -(w.deviation or 0)))
    return {
        "final_loss": median([r.steps.final_loss for r in good]),
        "eval_loss": median([r.eval_loss for r in good]),
        "unigram_entropy": _shared([r.identity.get("unigram_entropy") for r in row.runs if r.identified]),
        "peak_memory_bytes": max((r.peak_memory for r in row.runs if r.peak_memory is not None), default=None),
        "equal_work": str(worst),
    }


def _shared(values: list[Any]) -> Any:
    known = {json.dumps(v): v for v in values if v is not None}
    return next(iter(known.values())) if len(known) == 1 else None
