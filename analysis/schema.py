"""The shape of a line: names, types and the columns that a step line becomes.

Types are strict: a step that is a string or a negative time makes a line unreadable, never a number of
another kind.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

TOKEN = b":::MLLOG "
NAMESPACE = "ecg-train"
STEP_KEY = b'"key":"tracked_stats"'
STEP, CALIBRATION = "step", "calibration"

# Columns of one worker's step row, float64 each. Steps stay exact up to 2**53.
COLUMNS = ("step", "step_time", "data_time", "edge_time", "loss", "grad_norm", "learning_rate", "windows", "flags")
LONGEST = 1e9  # seconds, some 30 years: a longer duration is a damaged number
LOSS_NOT_FINITE, GRAD_NOT_FINITE = 1, 2
EVENTS = frozenset(
    [
        "ecg_launch",
        "ecg_run",
        "ecg_eval",
        "ecg_metrics",
        "ecg_calibration_unavailable",
        "ecg_resume",
        "run_start",
        "run_stop",
        "ecg_end",
        "ecg_exit",
    ]
)

Number = float | None
Loss = float | str | None


class Stats(msgspec.Struct, gc=False):
    """`value` of a step or calibration line; seconds and nats. "nan" and "inf" come as strings."""

    step: int
    step_time: Number = None
    data_time: Number = None
    edge_time: Number = None
    loss: Loss = None
    grad_norm: Loss = None
    learning_rate: Number = None
    windows: Number = None


class Where(msgspec.Struct, gc=False):
    """Which run and worker a line belongs to."""

    run: str
    rank: int


class FiniteStats(msgspec.Struct, gc=False):
    """The same with numbers only: what the decoder of whole chunks takes."""

    step: int
    step_time: Number = None
    data_time: Number = None
    edge_time: Number = None
    loss: Number = None
    grad_norm: Number = None
    learning_rate: Number = None
    windows: Number = None


class StepLine(msgspec.Struct, gc=False):
    namespace: Literal["ecg-train"]
    key: Literal["tracked_stats"]
    value: FiniteStats
    metadata: Where


class AnyLine(msgspec.Struct):
    """A line of any key; its value is decoded once the key is known."""

    namespace: str
    key: str
    value: msgspec.Raw
    metadata: dict[str, Any]


class Ending(msgspec.Struct):
    """Values that later code computes with; a wrong type makes the line unreadable instead of a crash."""

    rc: int | None = None
    wall_time: Number = None
    peak_memory_bytes: int | float | None = None
    cpu_time: Number = None
    status: str | None = None
    reason: str | None = None
    step: int | None = None
    loss: Loss = None
    tokens: int | None = None


class Identity(msgspec.Struct):
    """The fields of an identity with which the report computes. Others may be anything."""

    framework: str | None = None
    scaling: str | None = None
    precision: str | None = None
    world: int | None = None
    nodes: int | None = None
    steps: int | None = None
    timing_warmup: int | None = None
    zero_stage: int | None = None
    synthetic: bool | None = None
    tokens_per_step: Number = None
    flops_per_token: Number = None
    peak_flops_per_worker: Number = None
    unigram_entropy: Number = None
    layout: str | None = None
    group: str | None = None
    members: int | None = None
    job_id: str | None = None


class Majority(msgspec.Struct):
    accuracy: Number = None
    macro_f1: Number = None


class ClassFigures(msgspec.Struct, rename={"name": "class"}):
    """One class of the test; all but the count are shares or areas, 0 to 1."""

    name: str
    count: int | None = None
    sensitivity: Number = None
    positive_predictivity: Number = None
    f1: Number = None
    auroc: Number = None
    auroc_interval: list[float] | None = None


class Metrics(msgspec.Struct):
    """What the test of a fine-tuned model found."""

    task: str
    split: str | None = None
    examples: int | None = None
    recordings: int | None = None
    accuracy: Number = None
    macro_f1: Number = None
    macro_auroc: Number = None
    majority: Majority | None = None
    per_class: list[ClassFigures] = []


TYPED = {"ecg_eval": Ending, "ecg_resume": Ending, "ecg_end": Ending, "ecg_exit": Ending, "ecg_metrics": Metrics}
