"""Tests of fine-tuned models in the report: what a run stated is shown, what it did not state stays missing."""

from __future__ import annotations

import json
from pathlib import Path

import made_runs as made

from analysis.flat import runs_csv
from analysis.ingest import Source
from analysis.report import as_json, as_text, build

FIGURES = {
    "task": "beats",
    "split": "test",
    "classes": ["N", "S"],
    "multilabel": False,
    "majority": {"accuracy": 0.9, "macro_f1": 0.4737},
    "accuracy": 0.95,
    "macro_f1": 0.8125,
    "macro_auroc": None,
    "examples": 100,
    "recordings": 4,
    "per_class": [
        {"class": "N", "count": 90, "sensitivity": 0.97, "positive_predictivity": 0.98, "f1": 0.975, "auroc": 0.9,
         "auroc_interval": [0.8, 0.95]},
        {"class": "S", "count": 10, "sensitivity": 0.6, "positive_predictivity": None, "f1": 0.65, "auroc": None,
         "auroc_interval": None},
    ],
    "confusion": [[88, 2], [4, 6]],
}  # fmt: skip


def written(folder: Path, name: str, figures: object, **changes: object) -> Source:
    """Write a run of one worker that ends with a test."""
    who = made.identity(mode="finetune", dataset="made-beats", **changes)
    lines = [*made.rank_lines(name, 0, who, lambda rank, step: 0.1)]
    if figures is not None:
        lines.insert(-1, made.line(name, 0, "ecg_metrics", figures))
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return Source(path, name, name, True)


def test_tests_stand_side_by_side_with_what_they_began_with(tmp_path: Path) -> None:
    """One row per run that tested, beside the majority's answer; unknown is an empty cell, in JSON null."""
    sources = [
        written(tmp_path, "scratch", FIGURES, init_digest=None),
        written(tmp_path, "pretrained", FIGURES | {"macro_f1": 0.9}, init_digest="0123abcd"),
        written(tmp_path, "untested", None),
    ]
    report = build(sources, tmp_path)
    assert [(r["run"], r["start"], r["macro_f1"]) for r in report.held_out] == [
        ("scratch", "scratch", 0.8125),
        ("pretrained", "0123abcd", 0.9),
    ]
    shown = as_text(report)
    assert "Fine-tuned models on held-out recordings" in shown
    assert "N 97/98, S 60/-" in shown
    first = json.loads(as_json(report))["held_out"][0]
    assert first["macro_auroc"] is None
    assert first["per_class"][1]["sensitivity"] == 0.6
    header, *cells = (
        row.split(",")
        for row in runs_csv([{k: r[k] for k in ("run", "test_macro_f1")} for r in report.rows]).splitlines()
    )
    assert header == ["run", "test_macro_f1"]
    assert cells == [["scratch", "0.8125"], ["pretrained", "0.9"], ["untested", ""]]


def test_no_fine_tuning_no_section(tmp_path: Path) -> None:
    assert "held-out" not in as_text(build([written(tmp_path, "a", None)], tmp_path))


def test_figures_of_a_wrong_type_are_a_problem_not_a_number(tmp_path: Path) -> None:
    report = build([written(tmp_path, "a", FIGURES | {"macro_f1": "high"})], tmp_path)
    assert report.held_out == []
    assert any("macro_f1" in problem for problem in report.problems)
