"""The words of the report: how its numbers are defined, and what is said about a run."""

from __future__ import annotations

from typing import Any

from analysis.compare import EARLY, TOLERANCE
from analysis.metrics import TREND_P, TREND_SHARE
from analysis.runs import Run

HEADLINE = frozenset(
    [
        "mode",
        "model",
        "dataset",
        "seq_len",
        "global_batch",
        "worker_batch",
        "accumulation",
        "precision",
        "seed",
        "steps",
        "device",
        "device_name",
        "cores_per_worker",
        "oversubscribed",
        "code_digest",
    ]
)


def text(warmup: str, across: frozenset[str] = frozenset()) -> list[str]:
    """Return the definitions, one line each."""
    rule = (
        "as many steps as the run itself states (timing_warmup)"
        if warmup == "auto"
        else f"the first {warmup} steps (--warmup)"
    )
    apart = [f"On request these fields may differ within a table: {', '.join(sorted(across))}."] if across else []
    return [
        *apart,
        f"Warm-up: {rule}, from the first step and again after every restart; all later steps are measured.",
        "Step time: the slowest worker's, median over the measured steps; a row takes the median over its repeats. "
        "A ! at workers seen: the time rests on fewer workers than the run had (the log alone: rank 0).",
        "Throughput = tokens per step / step time. Waiting for data and the edge (loss mean, logging) are outside.",
        "Speedup = throughput / throughput of the baseline, which is the framework's smallest size unless "
        "--baseline names another framework; ideal = p / p0; efficiency = speedup / ideal.",
        "Overhead = worker-seconds per token over the baseline's, less 1: (p T_p - T_1) / T_1 in strong scaling, "
        "T_p / T_1 - 1 in weak.",
        "Karp-Flatt = (1/S - 1/p) / (1 - 1/p), for p0 = 1; in weak scaling Gustafson's (p - S) / (p - 1) instead.",
        "Exposed communication = median step with exchange - median step without, of the same run.",
        "Contention = mean worker's step without exchange / the step that the baseline promises, less 1.",
        "Where the speedup goes: each part of the step time that the ideal lacks, in workers "
        "(ideal * part / step time). Data wait is there the wait for the last worker's batch. The parts add up.",
        "Intervals: percentile bootstrap of medians over repeats, 2000 draws, fixed seed; few repeats make it too "
        "narrow. It differs when 1 lies outside.",
        f"Equal work: the first {EARLY} losses against the reference (serial, else the smallest world) of the same "
        f"experiment and global batch, within {TOLERANCE['fp32']:g} nats in fp32 and {TOLERANCE['bf16']:g} in bf16, "
        "whose 8 bits make the order of a sum matter.",
        f"Still trends: Mann-Kendall p < {TREND_P:g} and a Theil-Sen drift above {TREND_SHARE:.0%} of the median "
        "over the window.",
        "An empty cell was not measured. Runs that did not end well are in no quotient.",
    ]


def step_notes(run: Run) -> list[str]:
    """Return what a person should know about the steps of a run."""
    steps, out = run.steps, []
    if steps.restarts:
        where = ", ".join(map(str, steps.restarts[:4]))
        again = f": {steps.superseded} earlier rows superseded, the later attempt counts" if steps.superseded else ""
        out.append(f"started again at step {where}{again}")
    if steps.count:
        if run.timing.get("warmup_steps") is None:
            out.append("no warm-up stated, so nothing is measured: give --warmup")
        missing = steps.last - steps.first + 1 - steps.count
        if missing:
            out.append(f"{missing} steps missing between {steps.first} and {steps.last}")
        if steps.first > 1:
            out.append(f"the first step found is {steps.first}")
        if steps.partial:
            out.append(f"{steps.partial} steps lack a worker and are not measured")
        if run.world and steps.ranks < run.world:
            out.append(f"steps of {steps.ranks} of {run.world} workers found")
        elif run.world and steps.ranks > run.world:
            out.append(f"steps of {steps.ranks} workers found, the run says {run.world}")
    if run.uncalibrated:
        out.append(f"no calibration: {run.uncalibrated}")
    return out


def status_row(run: Run, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the status table."""
    planned = run.identity.get("steps")
    found = f"{run.steps.count} of {planned}" if planned else str(run.steps.count)
    said = "; ".join(([run.reason] if run.reason else []) + run.notes)
    return {
        "run": run.run,
        "synthetic": run.identity.get("synthetic"),
        "group": fields["group"],
        "status": run.status,
        "steps_text": found,
        "said": said if len(said) <= 90 else said[:87] + "...",
    }
