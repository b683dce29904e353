"""Made runs of known numbers: the log and the workers' files of a run, as the writer would leave them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TOKEN = ":::MLLOG "

IDENTITY: dict[str, Any] = {
    "framework": "ddp",
    "framework_version": "2.0",
    "torch_version": "2.0",
    "backend": "gloo",
    "device": "cpu",
    "device_name": "cpu",
    "nodes": 1,
    "world": 1,
    "mode": "pretrain",
    "scaling": "strong",
    "model": "tiny",
    "parameters": 1000,
    "dataset": "made",
    "dataset_digest": "sha256:0",
    "synthetic": False,
    "seq_len": 64,
    "global_batch": 16,
    "worker_batch": 16,
    "accumulation": 1,
    "precision": "fp32",
    "seed": 1,
    "steps": 30,
    "timing_warmup": 5,
    "learning_rate": 3e-4,
    "clip": 1.0,
    "zero_stage": None,
    "compile": False,
    "activation_checkpointing": False,
    "cores_per_worker": 1.0,
    "oversubscribed": False,
    "hosts": ["a"],
    "job_id": None,
    "repeat": 1,
    "git_revision": "r1",
    "code_digest": "abc",
    "image_digest": None,
    "flops_per_token": 6000,
    "tokens_per_step": 1024,
    "unigram_entropy": 5.5,
    "threads": 1,
}


def line(run: str, rank: int | None, key: str, value: Any, **metadata: Any) -> str:
    """Return one object in the field order of the writer, without the token."""
    body = {
        "namespace": "ecg-train",
        "time_ms": 1764529000000,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"run": run, "rank": rank, **metadata},
    }
    return json.dumps(body, separators=(",", ":"))


def identity(**changes: Any) -> dict[str, Any]:
    """Return an identity whose batches and tokens follow from scaling, world and the changes."""
    out = IDENTITY | changes
    if out["scaling"] == "strong":
        out["worker_batch"] = out["global_batch"] // out["world"]
    else:
        out["global_batch"] = out["worker_batch"] * out["world"]
    out["tokens_per_step"] = out["global_batch"] * out["seq_len"]
    return out | {k: v for k, v in changes.items() if k == "tokens_per_step"}


def loss_at(step: int) -> float:
    return 4.0 + 3.0 / step


def stats(
    step: int,
    time: float | None,
    data: float = 0.0,
    loss: Any = None,
    edge: float | None = 0.001,
    grad: Any = 0.5,
) -> dict[str, Any]:
    return {
        "step": step,
        "step_time": time,
        "data_time": data,
        "loss": loss_at(step) if loss is None else loss,
        "local_loss": 4.0,
        "grad_norm": grad,
        "learning_rate": 0.0003,
        "edge_time": None if step == 1 else edge,
    }


def rank_lines(
    run: str,
    rank: int,
    who: dict[str, Any],
    time: Callable[[int, int], float],
    *,
    steps: Iterable[int] | None = None,
    data: Callable[[int, int], float] = lambda rank, step: 0.0,
    loss: Callable[[int], Any] = loss_at,
    calibration: Callable[[int], float] | None = None,
    end: str = "success",
    reason: str = "",
    evals: float | None = 4.0,
) -> list[str]:
    """Return all lines of one worker. `end` is success, aborted or cut (nothing after the steps)."""
    out = [line(run, rank, "init_start", None), line(run, rank, "ecg_run", who), line(run, rank, "run_start", None)]
    for step in steps if steps is not None else range(1, who["steps"] + 1):
        value = stats(step, time(rank, step), data(rank, step), loss(step))
        out.append(line(run, rank, "tracked_stats", value, step=step))
    if end == "cut":
        return out
    if end == "success":
        if evals is not None:
            out.append(line(run, rank, "ecg_eval", {"step": who["steps"], "loss": evals, "tokens": 640}))
        out.append(line(run, rank, "run_stop", None, status="success"))
        if calibration:
            for step in range(1, 6):
                value = {"step": step, "step_time": calibration(rank), "data_time": 0.0}
                out.append(line(run, rank, "ecg_calibration", value))
    else:
        out.append(line(run, rank, "run_stop", None, status="aborted", reason=reason))
    value = {"status": end, "reason": reason, "wall_time": 9.0, "peak_memory_bytes": 1 << 20, "cpu_time": 5.0}
    out.append(line(run, rank, "ecg_end", value))
    return out


def launch(run: str, who: dict[str, Any]) -> str:
    names = "framework nodes world mode dataset model scaling accumulation seq_len steps precision seed repeat"
    value = {n: who[n] for n in names.split()}
    value["batch"] = who["global_batch"] if who["scaling"] == "strong" else who["worker_batch"]
    return TOKEN + line(run, None, "ecg_launch", value)


def write_run(
    results: Path,
    name: str,
    time: Callable[[int, int], float] | float,
    *,
    files: bool = True,
    rc: int | None = 0,
    log_extra: str = "",
    **options: Any,
) -> Path:
    """Write results/runs/name with a log and, if `files`, one JSONL file per worker; return the folder."""
    keys = ("steps", "data", "loss", "calibration", "end", "reason", "evals")
    given = {k: options.pop(k) for k in keys if k in options and not (k == "steps" and isinstance(options[k], int))}
    who = identity(**options)
    clock = time if callable(time) else (lambda rank, step: time)
    folder = results / "runs" / name
    folder.mkdir(parents=True)
    zero = rank_lines(name, 0, who, clock, **given)
    log = [launch(name, who), *(TOKEN + text for text in zero), log_extra]
    if rc is not None:
        log.append(TOKEN + line(name, None, "ecg_exit", {"rc": rc, "wall_time": 10.0}))
    (folder / "log").write_text("".join(text + "\n" for text in log if text), encoding="utf-8")
    for rank in range(who["world"]) if files else ():
        lines = zero if rank == 0 else rank_lines(name, rank, who, clock, **given)
        (folder / f"rank{rank}.jsonl").write_text("".join(text + "\n" for text in lines), encoding="utf-8")
    return folder
