"""Preflight: is everything as a run of this size needs it? Started exactly as the workers of a run are.

one node:  GPUS=2 bin/launch-local 2 bin/with-ranks python -m ecg_train.preflight
in a job:  make check GPUS=4 NODES=2 FW=horovod

Reads FW GPUS NODES MODEL DATASET SEQ and the ECG_* of a worker from the environment. Rank 0 prints one table and a
verdict. Exit codes: 0 fit (there may be warnings), 1 not fit, 2 a bad request.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ecg_train import preflight_facts as facts
from ecg_train import strategies
from ecg_train.config import Config, resolve
from ecg_train.errors import UserError
from ecg_train.logline import TOKEN, record
from ecg_train.preflight_rules import FAIL, Asked, Finding, judge, table, verdict
from ecg_train.ranks import from_environment
from ecg_train.run import finish
from ecg_train.sizes import SIZES, parameters

ROUNDS = 5


def main() -> int:
    """Check; return the exit code."""
    if any(flag in sys.argv[1:] for flag in ("-h", "--help")):
        print(__doc__)
        return 0
    try:
        return check(dict(os.environ))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001 - a rank that cannot join says why, whatever threw
        rank = from_environment().rank
        print(
            f"error: preflight: rank {rank} on {os.uname().nodename} cannot go on: {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}",
            file=sys.stderr,
            flush=True,
        )
        return 1


def check(environ: dict[str, str]) -> int:
    """Join, collect, judge, print; return 0 or 1. Raises UserError."""
    config = _config(environ)
    asked = Asked(_number(environ, "GPUS", 1), _number(environ, "NODES", 1), float(environ.get("ECG_CORES") or 0))
    name = environ.get("FW") or "ddp"
    if name not in strategies.KNOWN:
        raise UserError(f"FW={name!r} is not known; choose from: {' '.join(strategies.KNOWN)}")
    nccl_log = Path(tempfile.gettempdir()) / f"ecg-nccl-{os.getpid()}.log"
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_FILE", str(nccl_log))
    strategy = strategies.make(name)
    world = strategy.start(config)
    folder = Path(environ.get("ECG_RUN_DIR") or tempfile.gettempdir())
    strategy.mean((0.0,))  # all are here: the clocks are read at the same time
    own: dict[str, Any] = facts.node_facts()
    own |= {"rank": world.rank, "local_rank": world.local_rank, "world": world.size, "device": world.device}
    seconds, size = _bandwidth(strategy, config)
    cuda = world.device.startswith("cuda")
    own |= facts.gpu_facts(int(world.device.partition(":")[2] or 0) if cuda else None)
    own |= facts.data_facts(Path(config.data_dir), config.dataset, config.seq_len)
    own["transport"] = _transport(name, environ, nccl_log, cuda)
    stamp = f"preflight-{name}-{environ.get('ECG_RUN_ID') or 'local'}-{environ.get('MASTER_PORT', '0')}"
    _leave(folder / f"{stamp}-rank{world.rank}.json", own)
    strategy.mean((0.0,))
    code = 0
    if world.rank == 0:
        code = _report(folder, stamp, own, world.size, asked, name, seconds, size)
    (worst,) = strategy.mean((float(code),))
    strategy.stop(True)
    return 1 if worst > 0 else 0


def _config(environ: dict[str, str]) -> Config:
    given = {"expected_world": environ.get("GPUS"), "nodes": environ.get("NODES"), "model": environ.get("MODEL")}
    given |= {"dataset": environ.get("DATASET"), "seq_len": environ.get("SEQ"), "data_dir": environ.get("ECG_DATA")}
    given["timeout"] = environ.get("ECG_TIMEOUT") or "60"
    config, _ = resolve({name: value or None for name, value in given.items()}, environ)
    return config


def _number(environ: dict[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdigit() or int(text) < 1:
        raise UserError(f"{name}={text!r} is not a whole number of 1 or more")
    return int(text)


def _bandwidth(strategy: Any, config: Config) -> tuple[float, int]:
    """Return the best seconds of an all-reduce as large as the model's fp32 gradient, and its bytes."""
    size = 4 * parameters(SIZES[config.model])
    best = float("inf")
    for _ in range(ROUNDS):
        strategy.mean((0.0,))
        strategy.sync()
        begun = time.perf_counter()
        strategy.all_reduce(size // 4)
        strategy.sync()
        best = min(best, time.perf_counter() - begun)
    return best, size


def _transport(name: str, environ: dict[str, str], nccl_log: Path, cuda: bool) -> str | None:
    if cuda and name != "mpi":
        found = facts.nccl_transport(nccl_log)
        nccl_log.unlink(missing_ok=True)
        return f"NCCL {found}" if found else None
    if name in ("horovod", "mpi"):
        return facts.mpi_components()
    if name == "serial":
        return "none"
    return f"gloo over {facts.interface(environ.get('MASTER_ADDR') or '127.0.0.1')}"


def _leave(path: Path, own: dict[str, Any]) -> None:
    """Write this rank's facts where rank 0 finds them; that it can is one of the checks."""
    try:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(own), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        print(
            f"error: preflight: rank {own['rank']} on {own['host']} cannot write {path}: {error.strerror}",
            file=sys.stderr,
        )


def _report(folder: Path, stamp: str, own: dict, size: int, asked: Asked, name: str, seconds: float, moved: int) -> int:
    ranks, lost = [own | {"written": True}], []
    for rank in range(1, size):
        path = folder / f"{stamp}-rank{rank}.json"
        try:
            ranks.append(json.loads(path.read_text(encoding="utf-8")) | {"written": True})
        except (OSError, ValueError):
            lost.append(rank)
    for path in folder.glob(f"{stamp}-rank*.json"):
        path.unlink(missing_ok=True)
    found = judge(ranks, asked)
    if lost:
        found.append(
            Finding(
                "facts",
                f"none from rank {' '.join(map(str, lost))}",
                "from all",
                FAIL,
                "the results folder must be on a file system that all nodes can write",
            )
        )
    # Algorithm and bus bandwidth as nccl-tests defines them (doc/PERFORMANCE.md): bus = algorithm * 2 (n - 1) / n.
    algorithm = moved / seconds / 1e9
    bus = algorithm * 2 * (size - 1) / size
    if size > 1:
        found.append(
            Finding(
                "all-reduce",
                f"{moved / 1e6:.1f} MB in {1e3 * seconds:.1f} ms: {algorithm:.2f} GB/s, bus {bus:.2f} GB/s",
                "",
                "ok",
            )
        )
    worst = verdict(found)
    print(table(found))
    print(f"preflight of {name}: {'not fit' if worst == FAIL else 'fit' if worst == 'ok' else 'fit, with warnings'}")
    value = {
        "framework": name,
        "verdict": worst,
        "world": size,
        "hosts": sorted({r["host"] for r in ranks}),
        "transport": own["transport"],
        "all_reduce_bytes": moved,
        "all_reduce_time": seconds,
        "bus_gb_per_s": bus,
    }
    print(TOKEN + record(stamp, 0, "ecg_preflight", value), flush=True)
    return 1 if worst == FAIL else 0


if __name__ == "__main__":
    finish(main())
