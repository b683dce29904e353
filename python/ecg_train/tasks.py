"""A classification task: what the rows of an example set mean, without any framework.

An example set is a shard set whose rows stand side by side instead of overlapping. A row is uint16,

    seq_len tokens | 2 numbers: group, high and low half | the labels

where the group is the recording (numbered from 0 within the set) that the example was cut from, and the labels are
one class number, or, where several classes may hold at once, one bit per class, 16 to a number, lowest bit first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ecg_train.errors import UserError

GROUP_COLUMNS = 2
BITS = 16
WEIGHTS = ("none", "balanced")


@dataclass(frozen=True)
class Task:
    """What is to be told apart, and how the rows say it."""

    name: str
    """Name of the task, e.g. beats."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""
    multilabel: bool
    """Whether several classes, or none, may hold for one example."""
    seq_len: int
    """Tokens of an example."""
    counts: tuple[int, ...]
    """Training examples of each class."""
    examples: int
    """Training examples."""
    per_group: bool
    """Whether the answer is one per recording: the mean over its examples."""

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Task | None:
        """Return the task of an example set's manifest; None for a set that is for pretraining.

        Raises KeyError, TypeError or ValueError when the entry is damaged.
        """
        entry = manifest.get("task")
        if entry is None:
            return None
        classes = tuple(str(name) for name in entry["classes"])
        counts = tuple(int(n) for n in entry["counts"])
        if len(classes) < 2 or len(counts) != len(classes):
            raise ValueError(f"{len(classes)} classes with {len(counts)} counts")
        return cls(
            name=str(entry["name"]),
            classes=classes,
            multilabel=bool(entry["multilabel"]),
            seq_len=int(entry["seq_len"]),
            counts=counts,
            examples=int(entry["examples"]),
            per_group=bool(entry["per_group"]),
        )

    @property
    def label_columns(self) -> int:
        """Numbers at the end of a row that hold the labels."""
        return -(-len(self.classes) // BITS) if self.multilabel else 1

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.seq_len + GROUP_COLUMNS + self.label_columns

    def tokens(self, rows: np.ndarray) -> np.ndarray:
        """Return the tokens (n, seq_len) of rows (n, width): a view."""
        return rows[:, : self.seq_len]

    def groups(self, rows: np.ndarray) -> np.ndarray:
        """Return the recording (n,) int64 that each row was cut from."""
        high, low = (rows[:, self.seq_len + i].astype(np.int64) for i in range(GROUP_COLUMNS))
        return (high << BITS) | low

    def targets(self, rows: np.ndarray) -> np.ndarray:
        """Return class numbers (n,) int64, or, where several may hold, 0 or 1 per class (n, classes) float32."""
        labels = rows[:, self.seq_len + GROUP_COLUMNS :].astype(np.int64)
        if not self.multilabel:
            return labels[:, 0]
        number = np.arange(len(self.classes))
        return ((labels[:, number // BITS] >> (number % BITS)) & 1).astype(np.float32)

    def row(self, tokens: np.ndarray, group: int, labels: list[int]) -> np.ndarray:
        """Return one row (width,) uint16 of tokens (seq_len,), the recording's number and the classes that hold.

        Raises ValueError where they do not fit the task.
        """
        if len(tokens) != self.seq_len or not 0 <= group < 1 << (2 * BITS):
            raise ValueError(f"{len(tokens)} tokens of recording {group}; wanted {self.seq_len}")
        if any(not 0 <= label < len(self.classes) for label in labels) or (not self.multilabel and len(labels) != 1):
            raise ValueError(f"labels {labels} for {len(self.classes)} classes")
        columns = [0] * self.label_columns
        if self.multilabel:
            for label in labels:
                columns[label // BITS] |= 1 << (label % BITS)
        else:
            columns = [labels[0]]
        return np.concatenate([np.asarray(tokens), [group >> BITS, group & 0xFFFF], columns]).astype(np.uint16)

    def weights(self, kind: str) -> np.ndarray | None:
        """Return the weight of each class in the loss (classes,) float32; None for equal weights.

        balanced, one class per example: examples / (classes * count), as in King & Zeng 2001; several: the weight of
        a class that holds is (examples - count) / count. A class without a training example weighs 1.
        """
        if kind == "none":
            return None
        counts = np.array(self.counts, dtype=np.float64)
        other = self.examples - counts if self.multilabel else np.full(len(counts), self.examples / len(counts))
        return np.where(counts > 0, other / np.maximum(counts, 1), 1.0).astype(np.float32)

    def check_seq_len(self, seq_len: int) -> None:
        """Raise UserError unless a run's sequence length is that of the examples."""
        if seq_len != self.seq_len:
            raise UserError(
                f"sequence length {seq_len}: the examples of task {self.name!r} have {self.seq_len} tokens; "
                f"take SEQ={self.seq_len}, or make the examples anew with SEQ={seq_len}"
            )
