"""A small made shard set, and a way to run an entry script under its launcher."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ecg_train.shards import manifest_digest

ROOT = Path(__file__).resolve().parents[3]
MPI = ("horovod", "mpi")


def write_shards(folder: Path, seed: int = 0) -> Path:
    """Write a shard set whose next token can be learnt: a noisy sine over few bins."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    splits = {}
    for split, count in (("train", 20000), ("val", 4000)):
        walk = 500 + 12 * np.sin(np.arange(count) / 7) + random.normal(0, 1, count)
        tokens = walk.astype("<u2")
        name = f"{split}-00000.bin"
        tokens.tofile(folder / name)
        share = np.bincount(tokens, minlength=1024) / count
        entropy = float(-(share[share > 0] * np.log(share[share > 0])).sum())
        digest = hashlib.sha256(tokens.tobytes()).hexdigest()
        splits[split] = {
            "tokens": count,
            "shards": [{"file": name, "tokens": count, "sha256": digest}],
            "unigram_entropy": entropy,
        }
    manifest = {
        "format": "ecg-train-shards",
        "version": 1,
        "dataset": folder.name,
        "synthetic": True,
        "tokenizer": {"name": "amplitude", "vocab_size": 1024, "reserved": 64, "bins": 960},
        "splits": splits,
        "records": [],
        "skipped": [],
        "parameters": {},
    }
    manifest["digest"] = manifest_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data dir")  # with a space, as users have
    write_shards(folder / "walk")
    return folder


@dataclass
class Outcome:
    """How a run ended and what each worker logged."""

    code: int
    stdout: str
    stderr: str
    lines: list[list[dict]]

    def values(self, key: str, rank: int = 0) -> list:
        return [line["value"] for line in self.lines[rank] if line["key"] == key]

    def losses(self, rank: int = 0) -> list[float]:
        return [value["loss"] for value in self.values("tracked_stats", rank)]


def launch(framework: str, world: int, folder: Path, *flags: str, timeout: float = 240) -> Outcome:
    """Run one entry under its launcher, one core per worker as far as there are any."""
    command = [sys.executable, "-m", f"ecg_train.train_{framework}", "--run-dir", str(folder), *flags]
    ranks = str(ROOT / "bin" / "with-ranks")
    if framework in MPI:
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(world), ranks, *command]
    elif framework != "serial":
        command = [str(ROOT / "bin" / "launch-local"), str(world), ranks, *command]
    environ = dict(os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}", DS_LOG_LEVEL="error", TMPDIR="/tmp")
    environ |= {"ECG_THREADS": "1", "ECG_CORES": "1"}  # several threads on a busy core wait for each other
    environ["MASTER_PORT"] = str(free_port())
    if os.getuid() == 0:
        environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )
    logs = [folder / f"rank{rank}.jsonl" for rank in range(world)]
    lines = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs if log.exists()]
    return Outcome(done.returncode, done.stdout, done.stderr, lines)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def require(framework: str) -> None:
    """Skip, with the reason, where the framework or its launcher is missing; in CI that is a failure."""
    module = {"horovod": "horovod.torch", "mpi": "mpi4py.MPI", "deepspeed": "deepspeed"}.get(framework, "torch")
    missing = None
    if framework in MPI and not shutil.which("mpirun"):
        missing = "mpirun is not installed"
    else:
        done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False)
        if done.returncode:
            missing = f"{module} cannot be imported"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{framework}: {missing}")
    if missing:
        pytest.skip(f"{framework}: {missing}; 'make setup' installs it")
