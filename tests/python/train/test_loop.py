"""The loop with a strategy made of plain numbers: what it logs, when it stops, what it never imports."""

from __future__ import annotations

import ast
import io
import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from ecg_train import logline
from ecg_train.config import Config
from ecg_train.logline import TOKEN, LogWriter
from ecg_train.loop import Aborted, Loop
from ecg_train.strategies.base import StepResult

PACKAGE = Path(logline.__file__).parent


class Plain:
    """A strategy whose losses are given."""

    name = "plain"

    def __init__(self, losses, reason=None, on_step=None) -> None:
        self.losses, self.reason, self.on_step = list(losses), reason, on_step
        self.rates, self.exchanges, self.saved = [], [], None

    def train_step(self, micro_batches, learning_rate, exchange=True) -> StepResult:
        self.rates.append(learning_rate)
        self.exchanges.append(exchange)
        if self.on_step:
            self.on_step(len(self.rates))
        return StepResult(self.losses[(len(self.rates) - 1) % len(self.losses)], 0.5)

    def no_calibration(self):
        return self.reason

    def eval_loss(self, batch) -> float:
        return float(batch.mean())

    def mean(self, values):
        return list(values)

    def sync(self) -> None:
        pass

    def save(self, path) -> None:
        path.write_text("weights")


class Batches:
    def next(self):
        return [np.zeros((1, 3), dtype=np.int64)], 0.25


def run(config: Config, strategy: Plain, evaluation=None) -> list[dict]:
    stream = io.StringIO()
    writer = LogWriter("r", 0, None, stream)
    try:
        Loop(config, strategy, Batches(), evaluation, writer, 10).run()
    finally:
        lines = [json.loads(line.removeprefix(TOKEN)) for line in stream.getvalue().splitlines()]
        run.lines = lines  # for tests that expect an exception
    return lines


def of(key: str, lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["key"] == key]


def test_every_step_is_logged_with_its_parts() -> None:
    strategy = Plain([3.0, 2.0, 1.0])
    config = Config(steps=3, calibration_steps=2, eval_batches=0, lr_warmup=0)
    lines = run(config, strategy)
    steps = [line["value"] for line in of("tracked_stats", lines)]
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["loss"] for step in steps] == [3.0, 2.0, 1.0]
    assert all(step["data_time"] == 0.25 and step["step_time"] >= 0 for step in steps)
    assert steps[0]["edge_time"] is None
    assert all(step["edge_time"] >= 0 for step in steps[1:])
    assert [step["learning_rate"] for step in steps] == [config.learning_rate_at(step) for step in (1, 2, 3)]
    assert strategy.rates[:3] == [config.learning_rate_at(step) for step in (1, 2, 3)]
    (end,) = of("run_stop", lines)
    assert end["metadata"]["status"] == "success"
    assert lines[0]["key"] == "run_start"


def test_calibration_comes_last_and_leaves_the_exchange_out() -> None:
    strategy = Plain([1.0])
    lines = run(Config(steps=2, calibration_steps=3, eval_batches=0), strategy)
    assert strategy.exchanges == [True, True, False, False, False, False], "one more step is made and not counted"
    keys = [line["key"] for line in lines]
    assert keys[-3:] == ["ecg_calibration"] * 3
    assert keys.index("run_stop") < keys.index("ecg_calibration")


def test_a_strategy_that_cannot_leave_it_out_says_so() -> None:
    strategy = Plain([1.0], reason="it is all one")
    lines = run(Config(steps=2, eval_batches=0), strategy)
    assert strategy.exchanges == [True, True]
    assert of("ecg_calibration_unavailable", lines)[0]["value"] == "it is all one"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run(bad) -> None:
    with pytest.raises(Aborted, match=f"diverged: the loss is {bad} at step 2"):
        run(Config(steps=9, eval_batches=0), Plain([1.0, bad]))
    steps = of("tracked_stats", run.lines)
    assert [step["value"]["loss"] for step in steps] == [1.0, str(bad)], "valid JSON, and the last step is there"
    assert not of("run_stop", run.lines), "the caller writes how it ended"


def test_a_signal_ends_the_run_at_the_edge_of_a_step() -> None:
    strategy = Plain([1.0], on_step=lambda step: step == 3 and os.kill(os.getpid(), signal.SIGUSR2))
    with pytest.raises(Aborted, match="stopped on request after step 3"):
        run(Config(steps=50, eval_batches=0), strategy)


def test_a_stop_file_ends_the_run(tmp_path) -> None:
    strategy = Plain([1.0], on_step=lambda step: step == 2 and (tmp_path / "stop").touch())
    with pytest.raises(Aborted, match="after step 2"):
        run(Config(steps=50, eval_batches=0, run_dir=str(tmp_path)), strategy)


def test_validation_in_between_and_at_the_end() -> None:
    parts = [np.full((1, 2), 1.0), np.full((1, 2), 3.0)]
    lines = run(Config(steps=5, eval_every=2, calibration_steps=0), Plain([1.0]), lambda: iter(parts))
    evaluations = [line["value"] for line in of("ecg_eval", lines)]
    assert [(e["step"], e["loss"], e["tokens"]) for e in evaluations] == [(2, 2.0, 10), (4, 2.0, 10), (5, 2.0, 10)]


def test_each_worker_writes_its_file_and_only_rank_0_prints(tmp_path) -> None:
    stream = io.StringIO()
    for rank in (0, 1):
        writer = LogWriter("run", rank, tmp_path, stream)
        writer.event("tracked_stats", {"loss": math.nan, "list": [math.inf]}, step=1)
        writer.close()
        writer.close()
    files = [(tmp_path / f"rank{rank}.jsonl").read_text().splitlines() for rank in (0, 1)]
    bodies = [json.loads(file[0]) for file in files]
    assert [body["metadata"] for body in bodies] == [{"run": "run", "rank": r, "step": 1} for r in (0, 1)]
    assert bodies[0]["value"] == {"loss": "nan", "list": ["inf"]}
    assert stream.getvalue() == TOKEN + files[0][0] + "\n"
    assert bodies[0]["event_type"] == "POINT_IN_TIME"
    assert isinstance(bodies[0]["time_ms"], int)


FRAMEWORKS = {"torch", "tensorflow", "horovod", "deepspeed", "mpi4py"}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("name", ["loop", "run", "config", "logline", "loader", "order", "shards", "facts", "sizes"])
def test_no_framework_in_the_shared_parts(name) -> None:
    assert not imported(PACKAGE / f"{name}.py") & FRAMEWORKS


def test_sizes_of_files_stay_small() -> None:
    """Entry scripts below 60 lines, modules below 300 (what this does not catch: one line that does too much)."""
    entries = sorted(PACKAGE.glob("train_*.py"))
    assert len(entries) >= 6
    for path in entries:
        assert len(path.read_text().splitlines()) < 60, path.name
    root = PACKAGE.parents[1]
    for folder in (PACKAGE, root / "data_prep", root / "analysis"):
        for path in folder.rglob("*.py"):
            assert len(path.read_text().splitlines()) < 300, path
