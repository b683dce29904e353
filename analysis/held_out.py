"""How well fine-tuned models do on recordings that no training saw: what the runs' ``ecg_metrics`` lines say, side by
side. Nothing is computed here; a figure that a run did not state stays missing."""

from __future__ import annotations

from typing import Any

from analysis.runs import Run


def start(run: Run) -> str:
    """Say what the run began with: the start of the digest of its weights, or "scratch"."""
    return str(run.identity.get("init_digest") or "scratch")


def rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Return one row per run that tested a fine-tuned model, grouped by data set and task."""
    out = []
    for run in runs:
        found = run.metrics
        if found is None:
            continue
        out.append(
            {
                "run": run.run,
                "dataset": run.identity.get("dataset"),
                "task": found.get("task"),
                "framework": run.identity.get("framework"),
                "world": run.world,
                "model": run.identity.get("model"),
                "start": start(run),
                "head_only": run.identity.get("head_only"),
                "seed": run.identity.get("seed"),
                "steps": run.identity.get("steps"),
                "examples": found.get("examples"),
                "recordings": found.get("recordings"),
                "accuracy": found.get("accuracy"),
                "majority_accuracy": (found.get("majority") or {}).get("accuracy"),
                "macro_f1": found.get("macro_f1"),
                "majority_macro_f1": (found.get("majority") or {}).get("macro_f1"),
                "macro_auroc": found.get("macro_auroc"),
                "per_class": found.get("per_class"),
                "classes": classes(found.get("per_class") or []),
            }
        )
    return sorted(out, key=lambda row: (str(row["dataset"]), str(row["task"])))


def classes(found: list[dict[str, Any]]) -> str:
    """Return sensitivity and positive predictivity of each class in percent, as one text."""
    return ", ".join(
        f"{entry.get('class')} {_percent(entry.get('sensitivity'))}/{_percent(entry.get('positive_predictivity'))}"
        for entry in found
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}"
