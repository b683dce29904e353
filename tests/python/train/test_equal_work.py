"""The proof of equal work: sound runs of any framework, world and accumulation pass, each planted fault is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import ROOT, free_port, launch, require

from analysis.ingest import Source
from analysis.report import build

HERE = Path(__file__).parent
STEPS = 24  # more than the early steps whose losses are compared one by one
FLAGS = (
    "--dataset", "walk", "--model", "tiny", "--seq-len", "32", "--batch", "12", "--steps", str(STEPS),
    "--lr-warmup", "5", "--learning-rate", "3e-3", "--eval-batches", "0", "--calibration-steps", "0", "--timeout", "60",
)  # fmt: skip


def answers(folder: Path, runs: list[Path]) -> dict[str, dict]:
    """Return the report's row of each run, by its name."""
    sources = [Source(file, run.name, run.name, True) for run in runs for file in sorted(run.glob("rank*.jsonl"))]
    report = build(sources, folder)
    return {row["run"]: row for row in report.rows}


@pytest.fixture(scope="module")
def reference(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "serial"
    outcome = launch("serial", 1, folder, *FLAGS, "--data-dir", str(data_dir), "--run-id", "serial")
    assert outcome.code == 0, outcome.stderr
    return folder


def faulty(fault: str, world: int, folder: Path, data_dir: Path, *more: str) -> Path:
    command = [
        str(ROOT / "bin" / "launch-local"),
        str(world),
        str(ROOT / "bin" / "with-ranks"),
        sys.executable,
        str(HERE / "faulty.py"),
    ]
    command += [fault, *FLAGS, "--data-dir", str(data_dir), "--run-dir", str(folder), "--run-id", folder.name, *more]
    environ = dict(
        os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}", ECG_THREADS="1", ECG_CORES="1", MASTER_PORT=str(free_port())
    )
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=240, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("doubled_rate", ""),
        ("other_order", "other windows"),
        ("dropped_batch", "other windows"),
        ("summed", "gradient norm x 2"),
        ("not_exchanged", ""),
    ],
)
def test_a_planted_fault_is_caught(fault, why, reference, data_dir, tmp_path) -> None:
    """A run that did other work is told apart, with the reason where one can be named."""
    run = faulty(fault, 2, tmp_path / fault, data_dir)
    row = answers(tmp_path, [reference, run])[fault]
    assert row["equal_work"] == "no", row
    assert why in row["equal_work_why"]


@pytest.mark.parametrize(
    ("framework", "world", "more"),
    [
        ("ddp", 1, ()),
        ("ddp", 2, ()),
        ("ddp", 3, ()),
        ("ddp", 4, ()),
        ("ddp", 2, ("--accumulation", "3")),
        ("mpi", 2, ()),
        ("horovod", 2, ()),
        ("fsdp", 2, ()),
        ("deepspeed", 2, ()),
    ],
    ids=lambda x: "".join(x) if isinstance(x, tuple) else str(x),
)
def test_sound_runs_did_equal_work(framework, world, more, reference, data_dir, tmp_path) -> None:
    require(framework)
    folder = tmp_path / "sound"
    outcome = launch(framework, world, folder, *FLAGS, "--data-dir", str(data_dir), "--run-id", "sound", *more)
    assert outcome.code == 0, outcome.stderr
    assert answers(tmp_path, [reference, folder])["sound"]["equal_work"] == "yes"
    windows = [
        sum(v["windows"] for v in step) % (1 << 48)
        for step in zip(*(outcome.values("tracked_stats", r) for r in range(world)), strict=True)
    ]
    assert len(set(windows)) == STEPS, "every step consumed windows of its own"
