"""Merge one run and boil its window down to numbers; runs in a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analysis import merge
from analysis.ingest import Extent, FileResult
from analysis.metrics import trend, trends
from analysis.quantile import Series
from analysis.schema import CALIBRATION, GRAD_NOT_FINITE, LOSS_NOT_FINITE, STEP

STEPS_HEADER = (
    "run,step,step_time_s,step_time_mean_s,data_time_s,edge_time_s,loss,grad_norm,learning_rate,workers,in_window\n"
)
FORMAT_ROWS = 1 << 14  # little enough for the cache
# Columns of steps.csv, decimals, and the flag of a value that is not finite. A nanosecond is beyond any clock here.
SHOWN = (
    *((c, 9, 0) for c in (merge.TIME, merge.MEAN_TIME, merge.DATA, merge.EDGE)),
    (merge.LOSS, 9, LOSS_NOT_FINITE),
    (merge.GRAD, 9, GRAD_NOT_FINITE),
    (merge.RATE, 12, 0),
)
Sources = dict[int, list[list[Extent]]]


@dataclass
class Job:
    """One run to merge: extents by rank for steps and calibration, and the warm-up steps to leave out."""

    run: str
    world: int | None
    warmup: int | None
    spill: Path
    steps: Sources = field(default_factory=dict)
    calibration: Sources = field(default_factory=dict)
    resumed: frozenset[int] = frozenset()


def sources_of(files: list[FileResult]) -> dict[tuple[str, str], Sources]:
    """Sort the extents of all files by (run, kind) and rank; a worker's own file comes before the log."""
    out: dict[tuple[str, str], Sources] = {}
    for file in sorted(files, key=lambda f: not f.source.jsonl):
        for (run, rank, kind), extents in file.extents.items():
            out.setdefault((run, kind), {}).setdefault(rank, []).append(extents)
    return out


def measure(jobs: list[Job]) -> list[tuple[merge.Steps, dict[str, Any]]]:
    """Return for each run its steps (times left out, they stay here) and its timing in seconds and shares."""
    out = []
    for job in jobs:
        steps = merge.merge(job.steps, job.warmup, job.spill, job.resumed) if job.steps else merge.Steps()
        out.append((replace(steps, times=Series()), timing(job, steps)))
    return out


def timing(job: Job, steps: merge.Steps) -> dict[str, Any]:
    """Return the numbers of the window; None wherever something needed was not measured.

    Imbalance and skew need every worker's file. With the log alone all times are those of rank 0.
    """
    n = len(steps.times)
    out: dict[str, Any] = {"measured_steps": n, "workers_seen": steps.ranks or None, "warmup_steps": job.warmup}
    every = job.world is not None and steps.ranks == job.world
    if (q := steps.times.quantiles([0.1, 0.5, 0.9])) is not None:
        out["step_time_p10_s"], out["step_time_s"], out["step_time_p90_s"] = q
        out["imbalance"] = steps.sum_time / steps.sum_mean if every and steps.sum_mean > 0 else None
        data = _known(steps.sum_data)
        if data is not None and steps.sum_time + data > 0:
            out["data_time_s"], out["data_share"] = data / n, data / (data + steps.sum_time)
        skew = _known(steps.sum_skew)
        out["data_skew_s"] = skew / n if skew is not None and every else None
        out["edge_time_s"] = steps.sum_edge / steps.edges if steps.edges else None
        medians = steps.times.block_medians()
        found = trend(medians, len(medians))
        out["drift"], out["drift_p"] = found if found else (None, None)
        out["trends"] = trends(found)
    if job.calibration:
        times, mean, ranks = merge.calibration(job.calibration)
        if len(times) and set(job.calibration) == set(job.steps):
            out["calibration_steps"] = len(times)
            out["calibration_s"] = times.quantiles([0.5])[0]
            if every and ranks == job.world:
                out["calibration_mean_s"] = out["calibration_s"] * mean
            if "step_time_s" in out and job.world != 1:  # one worker has nobody to exchange with
                out["exposed_s"] = out["step_time_s"] - out["calibration_s"]
                out["exposed_share"] = out["exposed_s"] / out["step_time_s"] if out["step_time_s"] > 0 else None
    return out


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def format_steps(run: str, spill: Path, start: int, rows: int) -> bytes:
    """Return lines of steps.csv. The JSON encoder writes the shortest text that reads back as the same
    number.
    """
    count = rows * merge.MERGED_WIDTH
    offset = start * merge.MERGED_WIDTH * 8
    table = np.fromfile(spill, dtype=np.float64, count=count, offset=offset).reshape(rows, -1)
    columns: list[list[Any]] = [table[:, merge.STEP].astype(np.int64).tolist()]
    flags = table[:, merge.FLAGS].astype(np.int64)
    for c, digits, flag in SHOWN:
        with np.errstate(over="ignore"):
            short = np.round(table[:, c], digits)
        column = np.where(np.isinf(short), table[:, c], short).tolist()  # rounding a huge number overflows
        if flag and flags.any():
            for i in np.flatnonzero(flags & flag).tolist():  # not finite as measured, unlike a missing value
                column[i] = str(column[i])
        columns.append(column)
    columns.extend(table[:, c].astype(np.int64).tolist() for c in (merge.WORKERS, merge.WINDOW))
    body = msgspec.json.encode(list(zip(*columns, strict=True)))[2:-2]
    name = run if not set(run) & set(',"\r\n') else '"' + run.replace('"', '""') + '"'
    label = name.encode() + b","
    return label + body.replace(b"null", b"").replace(b"],[", b"\n" + label) + b"\n"


def step_kinds(found: dict[tuple[str, str], Sources], run: str) -> tuple[Sources, Sources]:
    """Return the step and the calibration sources of a run."""
    return found.get((run, STEP), {}), found.get((run, CALIBRATION), {})
