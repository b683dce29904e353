"""Nodes used independently: known throughputs together and alone, and what is missing stays missing."""

from __future__ import annotations

from pathlib import Path

import made_runs as made
import pytest

from analysis.ingest import Source
from analysis.report import as_text, build


def run(
    folder: Path, name: str, time: float, *, group: str | None = None, job: str = "7", members: int = 2, **changes
) -> list[Source]:
    """Write a run of one worker whose steps all take ``time`` seconds; 1024 tokens a step."""
    who = made.identity(**changes)
    launch = {
        "framework": "ddp",
        "layout": "independent",
        "group": group,
        "members": members if group else None,
        "job_id": job,
    }
    lines = [made.line(name, 0, "ecg_launch", launch), *made.rank_lines(name, 0, who, lambda rank, step: time)]
    lines.append(made.line(name, 0, "ecg_exit", {"rc": 0, "wall_time": 1.0}))
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return [Source(path, name, name, True)]


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    """Members at 1024/0.2 and 1024/0.5 tokens/s together; alone 1024/0.1 (twice, and another job's) and 1024/0.4."""
    out = []
    out += run(tmp_path, "alone-a", 0.1)
    out += run(tmp_path, "alone-b", 0.4, dataset="other", dataset_digest="sha256:9", hosts=["b"])
    out += run(tmp_path, "elsewhere", 0.001, job="8")
    out += run(tmp_path, "side-a", 0.2, group="7-1")
    out += run(tmp_path, "side-b", 0.5, group="7-1", dataset="other", dataset_digest="sha256:9", hosts=["b"])
    return out


def test_loss_of_each_member_and_throughput_of_the_group(sources, tmp_path) -> None:
    """Lost: 1 - 0.1/0.2 = 50 % and 1 - 0.4/0.5 = 20 %; 7168 of 12800 tokens/s; not another job's run."""
    report = build(sources, tmp_path)
    a, b, whole = report.independent
    assert (a["member"], a["lost"], a["alone_runs"]) == ("side-a", pytest.approx(0.5), 1)
    assert (b["dataset"], b["lost"]) == ("other", pytest.approx(0.2))
    assert whole["tokens_per_s"] == pytest.approx(1024 / 0.2 + 1024 / 0.5)
    assert whole["alone_tokens_per_s"] == pytest.approx(1024 / 0.1 + 1024 / 0.4)
    assert whole["lost"] == pytest.approx(1 - 7168 / 12800)
    assert "together against alone" in as_text(report)


def test_runs_side_by_side_are_no_repeats(sources, tmp_path) -> None:
    """The scaling tables hold the runs alone only: the disturbed ones would move their medians."""
    report = build(sources, tmp_path)
    times = [row["step_time_s"] for group in report.groups for row in group["rows"]]
    assert all(time < 0.15 or abs(time - 0.4) < 1e-9 for time in times)


def test_a_missing_member_leaves_the_sum_missing(sources, tmp_path) -> None:
    """With one of two members, or without its run alone, nothing is made up."""
    report = build([s for s in sources if s.label != "side-b" and s.label not in ("alone-a", "elsewhere")], tmp_path)
    a, whole = report.independent
    assert a["tokens_per_s"] == pytest.approx(5120)
    assert a["lost"] is None
    assert whole["tokens_per_s"] is None


def test_the_reason_of_the_launch_is_told(tmp_path) -> None:
    """A run that was cancelled from outside says nothing itself: the launch does."""
    lines = [
        made.line("x", 0, "ecg_launch", {"framework": "ddp", "world": 1}),
        made.line("x", 0, "ecg_exit", {"rc": 143, "wall_time": 1.0, "reason": "cancelled"}),
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines) + "\n")
    report = build([Source(path, "x", "x", True)], tmp_path)
    assert report.runs[0].status == "failed"
    assert report.runs[0].reason.startswith("cancelled")
