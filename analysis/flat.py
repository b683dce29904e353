"""One flat row per run, for runs.csv and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from analysis import compare, scaling
from analysis.runs import Run

RUN_FIELDS = (
    "framework", "framework_version", "torch_version", "backend", "device", "device_name", "nodes", "world", "mode",
    "scaling", "model", "parameters", "dataset", "dataset_digest", "synthetic", "seq_len", "global_batch",
    "worker_batch", "accumulation", "precision", "seed", "steps", "timing_warmup", "learning_rate", "clip",
    "zero_stage", "compile", "activation_checkpointing", "cores_per_worker", "threads", "oversubscribed", "hosts",
    "job_id", "repeat", "git_revision", "code_digest", "image_digest", "flops_per_token", "tokens_per_step",
    "unigram_entropy",
)  # fmt: skip
TIMING_FIELDS = (
    "warmup_steps", "measured_steps", "workers_seen", "step_time_s", "step_time_p10_s", "step_time_p90_s",
    "data_time_s", "data_share", "data_skew_s", "imbalance", "edge_time_s", "calibration_steps", "calibration_s",
    "calibration_mean_s", "exposed_s", "exposed_share", "drift", "drift_p", "trends",
)  # fmt: skip
ROW_FIELDS = (
    "ideal", "speedup", "efficiency", "overhead", "serial_fraction", "contention", "speedup_vs_serial",
)  # fmt: skip
TEST_FIELDS = ("accuracy", "macro_f1", "macro_auroc")


def run_rows(
    runs: list[Run], made: list[dict[str, Any]], groups: list[compare.Group], work: dict[str, compare.Work]
) -> list[dict[str, Any]]:
    """Return one dictionary per run; what belongs to a row of the tables is repeated in each of its runs."""
    owner = {run.run: group.name for group in groups for run in group.runs}
    shown = {name: row for g in made for row in g["rows"] for name in row["run_ids"]}
    out = []
    for run in runs:
        group = owner.get(run.run)
        row = shown.get(run.run, {})
        timed = scaling.timed(run)
        fields: dict[str, Any] = {"run": run.run, "status": run.status, "reason": run.reason or None}
        fields |= {"group": group, "notes": "; ".join(run.notes) or None}
        fields |= {name: run.identity.get(name) for name in RUN_FIELDS}
        fields |= {"steps_found": run.steps.count, "last_step": run.steps.last}
        fields |= {name: run.timing.get(name) for name in TIMING_FIELDS}
        rate = scaling.tokens_per_s(run) if timed else None
        flops = run.identity.get("flops_per_token")
        fields["tokens_per_s"] = rate
        fields["model_flops_per_s"] = flops * rate if rate is not None and flops else None
        fields["baseline"] = row.get("baseline") if timed else None
        fields |= {f"row_{name}": row.get(name) if timed else None for name in ROW_FIELDS}
        fields |= {"final_loss": run.steps.final_loss, "eval_loss": run.eval_loss}
        fields |= {f"test_{name}": (run.metrics or {}).get(name) for name in TEST_FIELDS}
        fields |= {"peak_memory_bytes": run.peak_memory, "equal_work": work[run.run].answer}
        fields |= {
            "equal_work_reference": work[run.run].reference or None,
            "equal_work_why": work[run.run].reason() or None,
            "loss_deviation": work[run.run].deviation,
        }
        out.append(fields)
    return out


def runs_csv(rows: list[dict[str, Any]]) -> str:
    """Return runs.csv: missing is an empty cell, a list is JSON, a truth is true or false."""
    out = io.StringIO()
    names = list(rows[0]) if rows else ["run", "status", "reason"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(
            ["" if v is None else json.dumps(v) if isinstance(v, list | dict | bool) else v for v in row.values()]
        )
    return out.getvalue()
