"""What one run is asked to do: one frozen dataclass, from which flags, ECG_* variables and docs are derived.

Precedence: default < environment (``ECG_<NAME>``) < command line. "Not given" is None and never falsy; every value
is checked before anything starts, and the message names the flag.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecg_train.errors import UserError
from ecg_train.sizes import SIZES
from ecg_train.tasks import WEIGHTS

MODES = ("pretrain", "finetune")
SCALINGS = ("strong", "weak")
PRECISIONS = ("fp32", "bf16")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def option(default: Any, help: str, choices: Sequence[str] = (), low: float | None = None, high: float | None = None):
    """Describe one field: its default, what it means, and the values it may have."""
    return field(default=default, metadata={"help": help, "choices": tuple(choices), "low": low, "high": high})


@dataclass(frozen=True)
class Config:
    """One training run."""

    mode: str = option("pretrain", "what is trained", MODES)
    dataset: str = option("mitdb", "name of the shard set")
    data_dir: str = option("data", "folder that holds the shard sets")
    model: str = option("small", "model size", tuple(SIZES))
    seq_len: int = option(256, "tokens of a sequence", low=8, high=65536)
    scaling: str = option("strong", "strong: --batch is global; weak: --batch is per worker", SCALINGS)
    batch: int = option(16, "sequences per optimizer step: global (strong) or per worker (weak)", low=1, high=1 << 24)
    accumulation: int = option(1, "micro-batches per optimizer step", low=1, high=1 << 16)
    steps: int = option(50, "optimizer steps", low=1, high=1 << 40)
    timing_warmup: int = option(3, "first steps that the report leaves out of step times", low=0, high=1 << 20)
    precision: str = option("fp32", "fp32, or bf16: products in bfloat16, weights and optimizer in fp32", PRECISIONS)
    seed: int = option(1, "seed of weights and batch order", low=0, high=(1 << 63) - 1)
    learning_rate: float = option(1e-3, "peak learning rate", low=0.0, high=10.0)
    lr_warmup: int = option(20, "steps of linear learning rate warm-up", low=0, high=1 << 40)
    lr_horizon: int = option(0, "step at which the cosine ends; 0: --steps", low=0, high=1 << 40)
    min_lr_ratio: float = option(0.1, "last learning rate over the peak", low=0.0, high=1.0)
    weight_decay: float = option(0.1, "AdamW's weight decay", low=0.0, high=10.0)
    clip: float = option(1.0, "largest global norm of the gradient; 0: do not clip", low=0.0, high=1e9)
    activation_checkpointing: bool = option(False, "recompute blocks in the backward pass")
    compile: bool = option(False, "compile the model with torch.compile")
    zero_stage: int = option(0, "ZeRO stage of DeepSpeed; 0 exchanges what DDP does", low=0, high=3)
    bucket_mb: float = option(0.0, "gradient bucket in MiB; 0: the strategy's own", low=0.0, high=65536.0)
    eval_batches: int = option(4, "validation batches of --batch sequences at the end; 0: none", low=0, high=1 << 30)
    eval_every: int = option(0, "steps between validations; 0: only at the end", low=0, high=1 << 40)
    calibration_steps: int = option(5, "exchange-off steps after the end; 0: none", low=0, high=1 << 20)
    verify_data: bool = option(False, "check the digests of all shards before the start")
    init_from: str = option("", "weights to start from: a run's folder or a .safetensors file; empty: none")
    head_only: bool = option(False, "finetune: train the classification head, leave the rest as it is")
    class_weights: str = option("balanced", "finetune: how much a class counts in the loss", WEIGHTS)
    test_examples: int = option(0, "finetune: test examples, evenly spaced; 0: all", low=0, high=1 << 40)
    checkpoint: bool = option(False, "write the weights to the run folder at the end, and the state when asked to stop")
    checkpoint_every: int = option(
        0, "steps between states to go on from, in the run folder; 0: none", low=0, high=1 << 40
    )
    resume: bool = option(False, "go on from the state in the run folder")
    repeat: int = option(1, "which repeat of the same experiment this is", low=1, high=1 << 20)
    nodes: int = option(1, "nodes of the run", low=1, high=1 << 20)
    expected_world: int = option(0, "world size that was asked for; 0: do not check", low=0, high=1 << 24)
    cores_per_worker: float = option(0.0, "cores of a worker, for the record; 0: count them", low=0.0, high=4096.0)
    threads: int = option(0, "compute threads of a worker; 0: its cores", low=0, high=4096)
    device: str = option("auto", "auto: CUDA where there is a GPU, else CPU", ("auto", "cpu", "cuda"))
    timeout: float = option(300.0, "seconds after which a silent collective is an error", low=1.0, high=86400.0)
    run_id: str = option("", "name of the run; empty: made from the time")
    run_dir: str = option("", "folder for rank<r>.jsonl; empty: none is written")

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            _check(spec, getattr(self, spec.name))
        if not NAME.fullmatch(self.dataset):
            raise UserError(
                f"--dataset {self.dataset!r}: wanted a name of small letters, digits, '-' and '_', such as mitdb"
            )
        if self.head_only and self.mode != "finetune":
            raise UserError("--head-only: only --mode finetune has a head of its own")
        if self.run_id and not RUN_ID.fullmatch(self.run_id):
            raise UserError(f"--run-id {self.run_id!r}: wanted letters, digits, '.', '_' and '-' only")

        if (self.resume or self.checkpoint_every) and not self.run_dir:
            raise UserError(
                f"--{'resume' if self.resume else 'checkpoint-every'}: give the folder of the run, --run-dir"
            )

    def global_batch(self, world: int) -> int:
        """Return the sequences per optimizer step over all ``world`` workers.

        Raises UserError when they cannot be shared out equally over workers and micro-batches.
        """
        total = self.batch * world if self.scaling == "weak" else self.batch
        if total % (world * self.accumulation):
            raise UserError(
                f"global batch {total} is not divisible by {world} workers x {self.accumulation} micro-batches "
                f"= {world * self.accumulation}; try --batch {_next_multiple(total, world * self.accumulation)}"
            )
        return total

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of ``step`` (from 1): linear warm-up, then a half cosine down to min_lr_ratio.

        Source: Loshchilov & Hutter 2017 (SGDR), eq. 5, one cycle, with the warm-up of Goyal et al. 2017.
        """
        if step <= self.lr_warmup:
            return self.learning_rate * step / self.lr_warmup
        horizon = max(self.lr_horizon or self.steps, self.lr_warmup + 1)
        progress = min(1.0, (step - self.lr_warmup) / (horizon - self.lr_warmup))
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.learning_rate * (self.min_lr_ratio + (1.0 - self.min_lr_ratio) * cosine)


def _next_multiple(value: int, factor: int) -> int:
    return -(-value // factor) * factor


def _check(spec: dataclasses.Field, value: Any) -> None:
    flag = "--" + spec.name.replace("_", "-")
    choices, low, high = spec.metadata["choices"], spec.metadata["low"], spec.metadata["high"]
    if choices and value not in choices:
        raise UserError(f"{flag} {value!r}: wanted one of {', '.join(choices)}")
    if low is not None and not low <= value <= high:
        raise UserError(f"{flag} {value}: wanted a number from {low:g} to {high:g}")


def _parse(spec: dataclasses.Field, text: str, source: str) -> Any:
    """Turn ``text`` into the type of the field, or say which flag or variable it was."""
    kind = type(spec.default)
    if kind is bool:
        known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() not in known:
            raise UserError(f"{source} {text!r}: wanted 0 or 1")
        return known[text.lower()]
    try:
        value = kind(text)
    except ValueError:
        wanted = {"int": "a whole number", "float": "a number"}[kind.__name__]
        raise UserError(f"{source} {text!r}: wanted {wanted}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{source} {text!r}: wanted a finite number")
    return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{message}; '{self.prog} --help' lists the flags")


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return a parser whose flags are the fields of Config."""
    result = _Parser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    for spec in dataclasses.fields(Config):
        flag = "--" + spec.name.replace("_", "-")
        about = spec.metadata["help"].replace("%", "%%")
        choices = f" ({', '.join(spec.metadata['choices'])})" if spec.metadata["choices"] else ""
        shown = f"{about}{choices} [{spec.default!s}]"
        if isinstance(spec.default, bool):
            result.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=shown)
        else:
            result.add_argument(flag, default=None, metavar="X", help=shown)
    return result


def resolve(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> tuple[Config, dict[str, str]]:
    """Return the configuration and, per field, where its value came from: default, environment or flag."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for spec in dataclasses.fields(Config):
        variable, flag = "ECG_" + spec.name.upper(), "--" + spec.name.replace("_", "-")
        raw = given.get(spec.name)
        if raw is not None:
            values[spec.name] = raw if isinstance(raw, bool) else _parse(spec, str(raw), flag)
            sources[spec.name] = "flag"
        elif environ.get(variable):
            values[spec.name] = _parse(spec, environ[variable], variable)
            sources[spec.name] = "environment"
        else:
            sources[spec.name] = "default"
    return Config(**values), sources


def parse_args(argv: Sequence[str], prog: str, description: str) -> tuple[Config, dict[str, str]]:
    """Return the configuration that a command line asks for."""
    return resolve(vars(parser(prog, description).parse_args(list(argv))))
