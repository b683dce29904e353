"""The one training loop: steps, timing, logging, stopping, calibration. No line of any framework is here.

Clock: monotonic, the device synchronised at both edges of a step. A step is forward, backward, exchange and update
over all micro-batches; waiting for the batch, averaging the loss and logging are outside and recorded apart.
Evaluation, checkpoint and calibration are outside too.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ecg_train.config import Config
from ecg_train.consumed import Consumed
from ecg_train.logline import END, START, LogWriter
from ecg_train.strategies.base import StepResult, Strategy

clock = time.perf_counter


class Batches(Protocol):
    """Where the micro-batches of the next step come from."""

    def next(self) -> tuple[list[np.ndarray], float]:
        """Return the micro-batches and the seconds waited for them."""


class Aborted(Exception):  # noqa: N818 - it is how a run ends, not only an error
    """The run ended before its last step; the text says why."""


class StopRequest:
    """Whether somebody asked this worker to stop: SIGUSR2, or a file ``stop`` in the run's folder."""

    def __init__(self, folder: str | None) -> None:
        self._file = Path(folder) / "stop" if folder else None
        self._asked = False
        signal.signal(signal.SIGUSR2, self._ask)

    def _ask(self, *_: Any) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked or (self._file is not None and self._file.exists())


@dataclass
class Loop:
    """One run of ``config.steps`` steps of ``strategy`` over ``batches``."""

    config: Config
    strategy: Strategy
    batches: Batches
    evaluation: Callable[[], Iterable[np.ndarray]] | None
    """Yields this worker's part of each validation batch; None: no validation."""
    log: LogWriter
    tokens_per_eval: int = 0
    after: Callable[[], None] | None = None
    """What comes after the last step and validation, such as the test of a classifier."""
    done: int = 0
    """Steps that an earlier attempt of this run has made."""
    keep: Callable[[int], None] | None = None
    """Keeps the state after a step, so that a later attempt goes on from there."""
    held: list[np.ndarray] = field(default_factory=list)
    """Micro-batches of the step that was just made."""
    consumed: Consumed = field(default_factory=Consumed)

    def run(self) -> None:
        """Train, validate, save, calibrate; raise Aborted when the loss is no number or a stop was asked for."""
        config = self.config
        stop = StopRequest(config.run_dir or None)
        self.log.event("run_start", event=START)
        edge: float | None = None
        for step in range(self.done + 1, config.steps + 1):
            result, step_time, data_time, begun, ended = self.timed_step(config.learning_rate_at(step))
            windows = self.consumed(self.held)
            # One exchange of two numbers: all workers see the same loss and stop at the same step.
            loss, asked = self.strategy.mean((result.loss, float(stop())))
            value = {
                "step": step,
                "step_time": step_time,
                "data_time": data_time,
                "loss": loss,
                "local_loss": result.loss,
                "grad_norm": result.grad_norm,
                "learning_rate": config.learning_rate_at(step),
                "edge_time": None if edge is None else begun - edge,
                "windows": windows,
            }
            self.log.event("tracked_stats", value, step=step)
            edge = ended
            if not math.isfinite(loss):
                raise Aborted(f"diverged: the loss is {loss} at step {step}")
            due = config.checkpoint_every and step % config.checkpoint_every == 0
            if self.keep is not None and step < config.steps and (asked > 0 or due):
                self.keep(step)
                edge = None
            if asked > 0:
                raise Aborted(f"stopped on request after step {step}")
            if config.eval_every and step % config.eval_every == 0 and step < config.steps:
                self.evaluate(step)
                edge = None
        self.evaluate(config.steps)
        if self.after is not None:
            self.after()
        if config.checkpoint and config.run_dir:
            path = Path(config.run_dir) / "weights.safetensors"
            self.strategy.save(path)
            self.log.event("ecg_checkpoint", path.name)
        self.log.event("run_stop", event=END, status="success")
        self.calibrate()

    def timed_step(self, rate: float, exchange: bool = True) -> tuple[StepResult, float, float, float, float]:
        """Return the result of one step, its seconds, the wait for data, and when step and wait began and ended."""
        asked = clock()
        self.held, data_time = self.batches.next()
        self.strategy.sync()
        begun = clock()
        result = self.strategy.train_step(self.held, rate, exchange)
        self.strategy.sync()
        ended = clock()
        return result, ended - begun, data_time, asked, ended

    def evaluate(self, step: int) -> None:
        """Log the mean validation loss over all workers."""
        if self.evaluation is None:
            return
        losses = [self.strategy.eval_loss(batch) for batch in self.evaluation()]
        (loss,) = self.strategy.mean((sum(losses) / len(losses),))
        self.log.event("ecg_eval", {"step": step, "loss": loss, "tokens": self.tokens_per_eval}, step=step)

    def calibrate(self) -> None:
        """Log steps that leave the gradients unexchanged: what the same work costs without communication.

        The weights of the workers drift apart here, so it comes last. One step more is made first and not counted:
        the switch may allocate.
        """
        if not self.config.calibration_steps:
            return
        reason = self.strategy.no_calibration()
        if reason:
            self.log.event("ecg_calibration_unavailable", reason)
            return
        rate = self.config.learning_rate_at(self.config.steps)
        for step in range(self.config.calibration_steps + 1):
            self.strategy.mean((0.0,))  # all start together, as they do in training
            _, step_time, data_time, _, _ = self.timed_step(rate, exchange=False)
            if step:
                self.log.event("ecg_calibration", {"step": step, "step_time": step_time, "data_time": data_time})
