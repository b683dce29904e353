"""The seam between the loop and a framework: arrays in, floats out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ecg_train.config import Config
from ecg_train.tasks import Task


@dataclass(frozen=True)
class World:
    """Who this worker is."""

    rank: int
    """Number of this worker among all, from 0."""
    local_rank: int
    """Number of this worker on its node, from 0."""
    size: int
    """World size: the number of workers."""
    device: str
    """Label of the device it computes on: cpu, cuda:0 ..."""


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step gives back."""

    loss: float
    """Mean loss over this worker's micro-batches, in nats per token."""
    grad_norm: float | None
    """Global norm of the averaged gradient before clipping; None where the framework does not tell."""


class Strategy(Protocol):
    """What the loop asks of a framework. The unit is the whole optimizer step."""

    name: str

    def start(self, config: Config) -> World:
        """Join the world. A second call is an error."""

    def build(self, config: Config, vocab_size: int, task: Task | None = None) -> None:
        """Create the model and the optimizer in this framework's order; equal weights on all workers.

        With a ``task`` the model is a classifier, and batches are rows of the task, int64 (rows, task.width).
        """

    def train_step(
        self, micro_batches: Sequence[np.ndarray], learning_rate: float, exchange: bool = True
    ) -> StepResult:
        """Do one optimizer update over all micro-batches, each int64 (rows, seq_len + 1).

        ``exchange=False`` leaves the gradients unexchanged: for calibration, after which the model is void.
        """

    def no_calibration(self) -> str | None:
        """Return why ``exchange=False`` is not possible; None when it is."""

    def eval_loss(self, batch: np.ndarray) -> float:
        """Return the mean loss over this worker's part of a validation batch, int64 (rows, seq_len + 1)."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the chances of the classes, float64 (rows, classes), for rows of the task; called by all workers."""

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the means over all workers. Every worker must call it."""

    def all_reduce(self, count: int) -> None:
        """Sum ``count`` zeros (fp32) over all workers, by the way that gradients take: for the preflight."""

    def sync(self) -> None:
        """Wait until the device has finished."""

    def facts(self) -> dict[str, Any]:
        """Return versions, backend and device name, for the log."""

    def usage(self) -> dict[str, Any]:
        """Return peak memory in bytes and the like, for the end of the log."""

    def save(self, path: Path) -> None:
        """Write the weights to ``path`` (safetensors), whole. Every worker must call it; rank 0 writes."""

    def no_state(self) -> str | None:
        """Return why the state of training cannot be kept; None when it can."""

    def save_state(self, path: Path, facts: dict[str, str]) -> None:
        """Write weights and optimizer state (safetensors, with ``facts`` as its texts), whole; called by all workers.

        Names are "weights.<name>" and "optimizer.<kind>.<name>" with the model's own names; nothing is sharded.
        """

    def load_state(self, path: Path) -> None:
        """Set weights and optimizer state to what ``save_state`` wrote; called by all workers after ``build``."""

    def stop(self, ok: bool) -> None:
        """Leave the world; after a failure (``ok`` false) without waiting for anybody."""
