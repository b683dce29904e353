"""One description of a run: precedence, checks that name the flag, batch sizes, the learning rate."""

from __future__ import annotations

import dataclasses
import math

import pytest

from ecg_train.config import Config, parse_args, parser, resolve
from ecg_train.errors import UserError


def of(*flags: str, **environ: str) -> Config:
    given = vars(parser("prog", "about").parse_args(list(flags)))
    return resolve(given, {f"ECG_{name.upper()}": value for name, value in environ.items()})[0]


def test_default_below_environment_below_flag() -> None:
    assert of().steps == 50
    assert of(steps="7").steps == 7
    assert of("--steps", "9", steps="7").steps == 9
    _, sources = resolve({"steps": "9"}, {"ECG_SEED": "3"})
    assert (sources["steps"], sources["seed"], sources["batch"]) == ("flag", "environment", "default")


def test_falsy_is_not_absent() -> None:
    """0 and off can be asked for over an environment that says otherwise; an empty variable is no value."""
    assert of("--seed", "0", seed="4").seed == 0
    assert of("--no-compile", compile="1").compile is False
    assert of(compile="1").compile is True
    assert of(steps="").steps == 50


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--steps", "0"), ("--steps", "0", "1")),
        (("--steps", "many"), ("--steps", "many", "whole number")),
        (("--learning-rate", "nan"), ("--learning-rate", "finite")),
        (("--model", "x; touch y"), ("--model", "touch", "tiny")),
        (("--scaling", "sideways"), ("--scaling", "strong, weak")),
        (("--precision", "fp8"), ("--precision", "bf16")),
        (("--dataset", "../../etc"), ("--dataset", "../../etc")),
        (("--dataset", ""), ("--dataset",)),
        (("--zero-stage", "4"), ("--zero-stage", "3")),
        (("--run-id", "a b"), ("--run-id",)),
        (("--stpes", "3"), ("--stpes", "--help")),
        (("--step", "3"), ("--step", "--help")),
    ],
)
def test_bad_values_are_named(flags, words) -> None:
    with pytest.raises(UserError) as caught:
        of(*flags)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_environment_names_the_variable() -> None:
    with pytest.raises(UserError, match="ECG_BATCH 'lots'"):
        of(batch="lots")


def test_help_shows_every_field(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(["--help"], "prog", "about")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for spec in dataclasses.fields(Config):
        assert "--" + spec.name.replace("_", "-") in text


def test_global_batch_strong_and_weak() -> None:
    assert [Config(batch=12).global_batch(world) for world in (1, 2, 3, 4)] == [12] * 4
    assert [Config(batch=12, scaling="weak").global_batch(world) for world in (1, 2, 3, 4)] == [12, 24, 36, 48]


def test_a_batch_that_does_not_divide_names_the_numbers() -> None:
    with pytest.raises(UserError, match=r"batch 16 .* 3 workers x 2 micro-batches = 6; try --batch 18"):
        Config(batch=16, accumulation=2).global_batch(3)


def test_learning_rate_known_answers() -> None:
    """Warm-up is a straight line; the cosine starts at the peak, is half way in the middle, ends at the floor."""
    config = Config(learning_rate=1.0, lr_warmup=10, steps=110, min_lr_ratio=0.1)
    assert config.learning_rate_at(1) == pytest.approx(0.1)
    assert config.learning_rate_at(10) == pytest.approx(1.0)
    assert config.learning_rate_at(60) == pytest.approx(0.55)
    assert config.learning_rate_at(110) == pytest.approx(0.1)
    assert config.learning_rate_at(500) == pytest.approx(0.1)
    third = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 3))
    assert Config(learning_rate=1.0, lr_warmup=0, lr_horizon=3, steps=9).learning_rate_at(1) == pytest.approx(third)


def test_the_flags_are_frozen() -> None:
    """A new flag is a decision: it must be added here, in bin/run and in the docs."""
    assert [spec.name for spec in dataclasses.fields(Config)] == [
        "mode", "dataset", "data_dir", "model", "seq_len", "scaling", "batch", "accumulation", "steps",
        "timing_warmup", "precision", "seed", "learning_rate", "lr_warmup", "lr_horizon", "min_lr_ratio",
        "weight_decay", "clip", "activation_checkpointing", "compile", "zero_stage", "bucket_mb", "eval_batches",
        "eval_every", "calibration_steps", "verify_data", "init_from", "head_only", "class_weights",
        "test_examples", "checkpoint", "checkpoint_every", "resume", "repeat", "nodes", "expected_world",
        "cores_per_worker", "threads", "device", "timeout", "run_id", "run_dir",
    ]  # fmt: skip
