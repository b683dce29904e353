"""The identity of a run: everything that two runs must share, or differ in on purpose, to be compared."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from ecg_train.config import Config
from ecg_train.shards import ShardSet
from ecg_train.sizes import SIZES, flops_per_token
from ecg_train.strategies.base import World

# Settings that change what a run computes; a row of the report may not hide any of them.
ECHOED = (
    "mode", "dataset", "model", "seq_len", "scaling", "accumulation", "precision", "seed", "steps", "timing_warmup",
    "learning_rate", "lr_warmup", "lr_horizon", "min_lr_ratio", "weight_decay", "clip", "activation_checkpointing",
    "compile", "nodes", "repeat", "head_only",
)  # fmt: skip


def git_revision() -> str | None:
    """Return the revision that ECG_GIT_REVISION names, else the checkout's (with -dirty); None outside of one."""
    if os.environ.get("ECG_GIT_REVISION"):
        return os.environ["ECG_GIT_REVISION"]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def code_digest() -> str:
    """Return the start of the SHA-256 over this package's sources: two runs of unlike code are unlike experiments.

    The git revision would not do: it changes with every word in the docs, and an image has none.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def init_digest(source: str) -> str | None:
    """Return the start of the SHA-256 over the weights that a run starts from; None when it starts from scratch."""
    if not source:
        return None
    path = Path(source) / "weights.safetensors" if Path(source).is_dir() else Path(source)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def identity(config: Config, world: World, strategy: str, facts: dict[str, Any], shards: ShardSet) -> dict[str, Any]:
    """Return the value of the ``ecg_run`` line."""
    global_batch = config.global_batch(world.size)
    cores = config.cores_per_worker or float(len(os.sched_getaffinity(0)))
    environ = os.environ
    return (
        {name: getattr(config, name) for name in ECHOED}
        | facts
        | {
            "framework": strategy,
            "world": world.size,
            "global_batch": global_batch,
            "worker_batch": global_batch // world.size,
            "tokens_per_step": global_batch * config.seq_len,
            "flops_per_token": flops_per_token(
                SIZES[config.model], config.seq_len, shards.vocab_size if shards.task is None else 0
            ),
            "task": shards.task.name if shards.task else None,
            "class_weights": config.class_weights if shards.task else None,
            "init_digest": init_digest(config.init_from),
            "dataset_digest": shards.digest,
            "synthetic": shards.synthetic,
            "unigram_entropy": shards.unigram_entropy,
            "zero_stage": config.zero_stage if strategy == "deepspeed" else None,
            "cores_per_worker": cores,
            "oversubscribed": environ.get("ECG_OVERSUBSCRIBED", "0") == "1",
            "hosts": environ["ECG_HOSTS"].split(",") if environ.get("ECG_HOSTS") else [platform.node()],
            "job_id": environ.get("SLURM_JOB_ID") or None,
            "git_revision": git_revision(),
            "code_digest": code_digest(),
            "image_digest": environ.get("ECG_IMAGE_DIGEST") or None,
            "python_version": platform.python_version(),
        }
    )
