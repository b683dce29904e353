"""A run that was stopped goes on as if it had not been: same tokens, same losses, same weights at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from launching import ROOT, launch, require
from safetensors.numpy import load_file

from analysis.ingest import Source
from analysis.report import build

FLAGS = ("--dataset", "walk", "--model", "tiny", "--seq-len", "32", "--batch", "8", "--steps", "8", "--eval-every", "2",
         "--calibration-steps", "0", "--learning-rate", "0.01", "--lr-warmup", "3", "--accumulation", "2",
         "--checkpoint", "--run-id", "one")  # fmt: skip


@pytest.mark.parametrize("framework", ["serial", "ddp", "fsdp", "horovod", "deepspeed", "mpi"])
def test_stopped_and_resumed_equals_not_stopped(framework: str, data_dir: Path, tmp_path: Path) -> None:
    """Stopped after the first step and again where a state was due: 8 steps in three attempts are those of one."""
    require(framework)
    world = 1 if framework == "serial" else 2
    flags = ("--data-dir", str(data_dir), *FLAGS)
    whole = launch(framework, world, tmp_path / "whole", *flags)
    assert whole.code == 0, whole.stderr
    assert not (tmp_path / "whole/state.safetensors").exists()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "stop").touch()
    first = launch(framework, world, cut, *flags)
    assert first.code == 1
    assert "stopped on request after step 1" in first.stderr
    (cut / "stop").unlink()
    outcome = launch(framework, world, cut, *flags, "--resume")
    assert outcome.code == 0, outcome.stderr
    steps = [value["step"] for value in outcome.values("tracked_stats")]
    assert steps == [1, *range(2, 9)]
    for key in ("windows", "learning_rate"):
        assert [v[key] for v in outcome.values("tracked_stats")] == [v[key] for v in whole.values("tracked_stats")]
    assert outcome.losses() == pytest.approx(whole.losses(), rel=2e-5)
    assert outcome.values("ecg_eval")[-1]["loss"] == pytest.approx(whole.values("ecg_eval")[-1]["loss"], rel=2e-5)
    (found,) = build([Source(cut / "rank0.jsonl", "one", "one", True)], tmp_path).runs
    assert "started again at step 2" in found.notes
    assert (found.status, found.steps.count, found.steps.superseded) == ("ok", 8, 0)
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    for name, value in one.items():
        # As sums of floats in another order may differ; a step that was made twice or lost is 0.01 away.
        assert np.allclose(value, other[name], atol=2e-4), name


def test_a_killed_run_goes_on_from_its_last_state(data_dir: Path, tmp_path: Path) -> None:
    """Killed without warning after a state was kept: what came after that state is made again, with the same losses,
    and counts once in the report."""
    run = tmp_path / "run"
    flags = ("--data-dir", str(data_dir), *FLAGS, "--steps", "300", "--eval-batches", "0", "--checkpoint-every", "20")
    command = [sys.executable, "-m", "ecg_train.train_serial", "--run-dir", str(run), *flags]
    environ = dict(os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}", ECG_THREADS="1")
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (run / "state.safetensors").exists():
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        process.kill()
    outcome = launch("serial", 1, run, *flags, "--resume")
    assert outcome.code == 0, outcome.stderr
    made = [(value["step"], value["loss"], value["windows"]) for value in outcome.values("tracked_stats")]
    again = outcome.values("ecg_resume")[0]["step"]
    assert again in {20, 40, 60, 80, 100, 120}
    assert [step for step, _, _ in made][-(300 - again) :] == list(range(again + 1, 301))
    for step, loss, windows in made:
        same = [(other, digest) for number, other, digest in made if number == step]
        assert all(loss == pytest.approx(other, rel=1e-5) and windows == digest for other, digest in same)
    (found,) = build([Source(run / "rank0.jsonl", "one", "one", True)], tmp_path).runs
    assert (found.status, found.steps.count) == ("ok", 300)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--seed", "2"), "seed is 1, this one's 2"),
        (("--learning-rate", "0.02"), "learning_rate is 0.01"),
        (("--steps", "9"), "steps is 8"),
        (("--class-weights", "none"), "class_weights is 'balanced', this one's 'none'"),
    ],
)
def test_another_run_is_not_gone_on_with(change, words, data_dir: Path, tmp_path: Path) -> None:
    flags = ("--data-dir", str(data_dir), *FLAGS)
    run = tmp_path / "run"
    run.mkdir()
    (run / "stop").touch()
    launch("serial", 1, run, *flags)
    (run / "stop").unlink()
    outcome = launch("serial", 1, run, *flags, "--resume", *change)
    assert outcome.code == 1
    assert words in outcome.stderr


def test_what_is_no_state_is_refused(data_dir: Path, tmp_path: Path) -> None:
    """No file, a file that is not one, and a pickle: each is an error that names the file."""
    flags = ("--data-dir", str(data_dir), *FLAGS, "--resume")
    run = tmp_path / "run"
    assert "there is no state to go on from" in launch("serial", 1, run, *flags).stderr
    for content in (b"", b"garbage of some length", b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00."):
        (run / "state.safetensors").write_bytes(content)
        outcome = launch("serial", 1, run, *flags)
        assert outcome.code == 1
        assert "is no state of a run" in outcome.stderr


def test_zero_says_why_it_keeps_no_state(data_dir: Path, tmp_path: Path) -> None:
    require("deepspeed")
    flags = ("--data-dir", str(data_dir), *FLAGS, "--zero-stage", "1", "--checkpoint-every", "2")
    outcome = launch("deepspeed", 1, tmp_path / "run", *flags)
    assert outcome.code == 0, outcome.stderr
    assert "pickle" in outcome.values("ecg_state_unavailable")[0]
