"""Entry scripts as a user calls them: help anywhere, bad requests in one line and status 2, failures with status 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import ROOT, launch, require, write_shards

from ecg_train.strategies import KNOWN

SMALL = ("--dataset", "walk", "--model", "tiny", "--seq-len", "32", "--batch", "4", "--steps", "3")


@pytest.mark.parametrize("framework", KNOWN)
def test_help_needs_no_framework(framework) -> None:
    """With every framework made impossible to import, --help still works."""
    block = "import sys\nfor name in ('torch', 'horovod', 'deepspeed', 'mpi4py'): sys.modules[name] = None\n"
    run = f"from ecg_train.train_{framework} import run\nsys.exit(run(['--help']))"
    done = subprocess.run(
        [sys.executable, "-c", block + run], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--zero-stage" in done.stdout
    assert f"make run FW={framework}" in done.stdout, "the launch lines are in the help"


@pytest.mark.parametrize("framework", KNOWN)
def test_a_missing_framework_says_what_to_do(framework, data_dir) -> None:
    block = "import sys\nfor name in ('torch', 'horovod', 'deepspeed', 'mpi4py'): sys.modules[name] = None\n"
    flags = [*SMALL, "--data-dir", str(data_dir)]
    run = f"from ecg_train.train_{framework} import run\nsys.exit(run({flags!r}))"
    done = subprocess.run(
        [sys.executable, "-c", block + run], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 2
    assert f"{framework} is not usable here" in done.stderr
    assert "make setup" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}")


def bad(tmp_path: Path, *flags: str) -> str:
    """Run serial with flags that must fail; return the one line of error."""
    outcome = launch("serial", 1, tmp_path / "run", *flags)
    assert outcome.code == 2, outcome.stderr
    assert outcome.stdout == ""
    assert not (tmp_path / "run").exists(), "nothing may be left of a request that was refused"
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--dataset", "nowhere"), ("nowhere", "walk", "make data DATASET=nowhere")),
        (("--dataset", "../../etc"), ("../../etc",)),
        (("--model", "x; touch y"), ("x; touch y", "tiny, small")),
        (("--seq-len", "60000"), ("walk", "60001")),
        (("--steps", "-1"), ("--steps",)),
    ],
)
def test_bad_requests_are_refused_in_one_line(flags, words, data_dir, tmp_path) -> None:
    line = bad(tmp_path, *SMALL, "--data-dir", str(data_dir), *flags)
    for word in words:
        assert word in line
    assert not (Path.cwd() / "y").exists()


def test_a_shard_one_byte_short_is_refused(tmp_path) -> None:
    folder = write_shards(tmp_path / "data" / "walk")
    shard = folder / "train-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    line = bad(tmp_path, *SMALL, "--data-dir", str(tmp_path / "data"))
    assert "train-00000.bin" in line
    assert "39999" in line
    assert "40000" in line


def test_a_batch_that_does_not_divide_ends_with_the_numbers(data_dir, tmp_path) -> None:
    outcome = launch("ddp", 3, tmp_path / "run", *SMALL, "--data-dir", str(data_dir))
    assert outcome.code == 2, outcome.stderr
    assert "batch 4 is not divisible by 3 workers" in outcome.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("framework", "world"), [("serial", 1), ("ddp", 2), ("horovod", 2), ("mpi", 2)])
def test_a_run_that_diverges_fails_and_says_so(framework, world, data_dir, tmp_path) -> None:
    """Weight decay of 10 at a rate of 10 multiplies the weights by -99 at each step: soon no number is left."""
    require(framework)
    wild = ("--learning-rate", "10", "--weight-decay", "10", "--clip", "0", "--lr-warmup", "0", "--steps", "60")
    outcome = launch(framework, world, tmp_path, *SMALL, "--data-dir", str(data_dir), *wild)
    assert outcome.code == 1, outcome.stdout
    assert "diverged: the loss is" in outcome.stderr
    for lines in outcome.lines:
        (stop,) = [line for line in lines if line["key"] == "run_stop"]
        assert stop["metadata"]["status"] == "aborted"
        assert "diverged" in stop["metadata"]["reason"]
        assert lines[-1]["key"] == "ecg_end"


def test_identity_is_whole(data_dir, tmp_path) -> None:
    """Every fact that two runs must share to be compared is in the one line that states what a run is."""
    outcome = launch("serial", 1, tmp_path, *SMALL, "--data-dir", str(data_dir), "--repeat", "2")
    (run,) = outcome.values("ecg_run")
    for name in (
        "framework", "framework_version", "torch_version", "backend", "device", "device_name", "nodes", "world", "mode",
        "scaling", "model", "parameters", "dataset", "dataset_digest", "synthetic", "seq_len", "global_batch",
        "worker_batch", "accumulation", "precision", "seed", "steps", "timing_warmup", "learning_rate", "clip",
        "compile", "activation_checkpointing", "cores_per_worker", "oversubscribed", "hosts", "repeat",
        "flops_per_token", "tokens_per_step", "unigram_entropy", "threads",
    ):  # fmt: skip
        assert run[name] is not None, name
    for name in ("zero_stage", "job_id", "git_revision", "image_digest"):
        assert name in run
    assert (run["repeat"], run["tokens_per_step"], run["synthetic"]) == (2, 128, True)
