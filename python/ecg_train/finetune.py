"""The test of a fine-tuned model: every example of the test split once, over all workers; no framework here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ecg_train import scores
from ecg_train.errors import UserError
from ecg_train.shards import TOKEN, ShardSet
from ecg_train.strategies.base import Strategy, World

CHUNK = 1 << 16  # numbers that one exchange carries: lists of floats, so not all at once


def check_mode(mode: str, shards: ShardSet) -> None:
    """Raise UserError unless the data set is one that this mode can train on."""
    if mode == "finetune" and shards.task is None:
        raise UserError(
            f"--mode finetune: {shards.dataset!r} holds no examples with labels; make them with: "
            f"make examples DATASET={shards.dataset} TASK=beats (or superclasses, snomed)"
        )
    if mode == "pretrain" and shards.task is not None:
        raise UserError(f"--mode pretrain: {shards.dataset!r} holds labelled examples; take MODE=finetune")


@dataclass
class HeldOut:
    """The test split of an example set, and what the model says about it."""

    shards: ShardSet
    rows: int
    """Examples of one forward pass of one worker."""
    limit: int = 0
    """Most examples to take, evenly spaced; 0: all."""

    def scores(self, strategy: Strategy, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows (n, width) uint16, probabilities (n, classes)) of the test, the same on every worker.

        Every worker takes every ``world.size``-th batch, and all of them as many batches: some strategies gather
        weights in a forward pass, so nobody may stay away. What is beyond the end repeats the last example.
        """
        task = self.shards.task
        assert task is not None
        count = self.shards.n_windows
        total = min(self.limit or count, count)
        chosen = np.arange(total) * count // total
        batches = -(-total // (self.rows * world.size))
        found = np.zeros((batches * world.size * self.rows, len(task.classes)))
        buffer = np.empty((self.rows, task.width), dtype=TOKEN)
        for number in range(batches):
            first = (number * world.size + world.rank) * self.rows
            self.shards.gather(chosen[np.minimum(np.arange(first, first + self.rows), total - 1)], buffer)
            found[first : first + self.rows] = strategy.predict(buffer.astype(np.int64))
        everything = np.empty((total, task.width), dtype=TOKEN)
        self.shards.gather(chosen, everything)
        return everything, self._shared(found[:total], strategy, world)

    @staticmethod
    def _shared(found: np.ndarray, strategy: Strategy, world: World) -> np.ndarray:
        """Put the workers' parts together: each holds zeros where another one computed."""
        if world.size == 1:
            return found
        flat = found.reshape(-1)
        parts: list[float] = []
        for start in range(0, flat.size, CHUNK):
            parts.extend(strategy.mean(flat[start : start + CHUNK].tolist()))
        return np.array(parts).reshape(found.shape) * world.size

    def figures(self, strategy: Strategy, world: World) -> dict[str, Any]:
        """Return the value of the ``ecg_metrics`` line."""
        task = self.shards.task
        assert task is not None
        rows, found = self.scores(strategy, world)
        targets, groups = task.targets(rows), task.groups(rows)
        if task.per_group:
            groups, found, targets = scores.by_group(groups, found, targets)
        return {
            "task": task.name,
            "split": self.shards.split,
            "classes": list(task.classes),
            "multilabel": task.multilabel,
            "majority": scores.majority(targets, task.counts, task.examples, task.multilabel),
        } | scores.evaluate(found, targets, groups, task.classes, task.multilabel)


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text for a terminal."""
    lines = [
        f"test of {figures['task']}: {figures['examples']} examples of {figures['recordings']} recordings, "
        f"accuracy {_shown(figures['accuracy'])} (majority {_shown(figures['majority']['accuracy'])}), "
        f"macro F1 {_shown(figures['macro_f1'])} (majority {_shown(figures['majority']['macro_f1'])}), "
        f"macro AUROC {_shown(figures['macro_auroc'])}",
        f"{'class':>12} {'count':>7} {'Se':>6} {'+P':>6} {'F1':>6} {'AUROC':>6}  95 % interval",
    ]
    for entry in figures["per_class"]:
        interval = entry["auroc_interval"]
        shown = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        numbers = (entry[name] for name in ("sensitivity", "positive_predictivity", "f1", "auroc"))
        lines.append(
            f"{entry['class']:>12} {entry['count']:>7} " + " ".join(f"{_shown(n):>6}" for n in numbers) + f"  {shown}"
        )
    if figures["confusion"]:
        lines.append("confusion (rows: truth, columns: answer) of " + " ".join(figures["classes"]))
        lines.extend(" ".join(f"{n:>7}" for n in row) for row in figures["confusion"])
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
