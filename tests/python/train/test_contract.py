"""Every strategy does the same work as serial: the first 20 losses agree to 1e-4 in fp32, whatever the world."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import Outcome, launch, require

STEPS = 20
COMMON = (
    "--dataset", "walk", "--model", "tiny", "--seq-len", "64", "--batch", "8", "--steps", str(STEPS),
    "--lr-warmup", "5", "--learning-rate", "3e-3", "--eval-batches", "2", "--calibration-steps", "1", "--timeout", "60",
)  # fmt: skip
TOLERANCE = 1e-4


def flags(data_dir: Path, world: int, *more: str) -> tuple[str, ...]:
    return ("--data-dir", str(data_dir), "--expected-world", str(world), *COMMON, *more)


@pytest.fixture(scope="module")
def reference(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    outcome = launch("serial", 1, tmp_path_factory.mktemp("serial"), *flags(data_dir, 1))
    assert outcome.code == 0, outcome.stderr
    assert outcome.losses()[-1] < outcome.losses()[0] - 0.5, "the reference must learn, else agreement proves little"
    return outcome


CASES = [
    *((framework, world, ()) for framework in ("ddp", "fsdp", "horovod", "deepspeed", "mpi") for world in (1, 2)),
    *((framework, 2, ("--accumulation", "2")) for framework in ("ddp", "fsdp", "horovod", "deepspeed", "mpi")),
    ("serial", 1, ("--accumulation", "4")),
    ("serial", 1, ("--activation-checkpointing",)),
    *(("deepspeed", 2, ("--zero-stage", stage)) for stage in "123"),
    ("ddp", 2, ("--compile",)),
    ("mpi", 3, ("--batch", "24", "--bucket-mb", "0.5")),
    *((framework, 3, ("--batch", "24")) for framework in ("ddp", "fsdp")),
]


@pytest.mark.parametrize(("framework", "world", "more"), CASES, ids=lambda x: "".join(x) if isinstance(x, tuple) else x)
def test_losses_equal_serial(framework, world, more, reference, data_dir, tmp_path) -> None:
    require(framework)
    if "--batch" in more:
        reference = launch("serial", 1, tmp_path / "serial", *flags(data_dir, 1, *more))
    outcome = launch(framework, world, tmp_path / "run", *flags(data_dir, world, *more))
    assert outcome.code == 0, outcome.stderr
    assert len(outcome.lines) == world
    for rank in range(world):
        assert outcome.losses(rank) == pytest.approx(reference.losses(), abs=TOLERANCE), f"rank {rank}"
    norms = [value["grad_norm"] for value in outcome.values("tracked_stats")]
    wanted = [value["grad_norm"] for value in reference.values("tracked_stats")]
    assert norms == pytest.approx(wanted, rel=1e-3), "the averaged gradients have the norm of the whole batch's"
    (evaluation,) = outcome.values("ecg_eval")
    assert evaluation["loss"] == pytest.approx(reference.values("ecg_eval")[0]["loss"], abs=TOLERANCE)
    if "3" in more:
        assert "ZeRO 3" in outcome.values("ecg_calibration_unavailable")[0]
    else:
        assert len(outcome.values("ecg_calibration")) == 1
    assert outcome.values("ecg_run")[0]["world"] == world


@pytest.mark.parametrize("framework", ["ddp", "fsdp"])
def test_bf16_stays_near_fp32(framework, reference, data_dir, tmp_path) -> None:
    """bf16 keeps 8 bits: losses of about 6 nats agree to a few hundredths over 20 steps, and are not fp32's."""
    outcome = launch(framework, 2, tmp_path, *flags(data_dir, 2, "--precision", "bf16"))
    assert outcome.code == 0, outcome.stderr
    assert outcome.losses() == pytest.approx(reference.losses(), abs=0.05)
    assert outcome.losses() != pytest.approx(reference.losses(), abs=1e-6)


def test_weak_scaling_grows_the_global_batch(reference, data_dir, tmp_path) -> None:
    """Weak scaling with 4 per worker on 2 workers is the same work as a global batch of 8."""
    outcome = launch("ddp", 2, tmp_path, *flags(data_dir, 2, "--scaling", "weak", "--batch", "4"))
    assert outcome.code == 0, outcome.stderr
    assert outcome.losses() == pytest.approx(reference.losses(), abs=TOLERANCE)
    run = outcome.values("ecg_run")[0]
    assert (run["global_batch"], run["worker_batch"], run["scaling"]) == (8, 4, "weak")


def test_wrong_world_size_is_the_first_thing_noticed(data_dir, tmp_path) -> None:
    outcome = launch("ddp", 1, tmp_path, *flags(data_dir, 2))
    assert outcome.code == 2
    assert "world size is 1, wanted 2" in outcome.stderr
    assert not outcome.lines, "no log is begun for a run that cannot start"


@pytest.mark.parametrize("framework", ["ddp", "mpi"])
def test_checkpoint_holds_the_serial_weights(framework, data_dir, tmp_path) -> None:
    """The weights that 2 workers save are those that serial saves, and load without pickle."""
    from safetensors.numpy import load_file

    require(framework)
    few = ("--steps", "3", "--checkpoint", "--calibration-steps", "0")
    saved = []
    for name, world in (("serial", 1), (framework, 2)):
        outcome = launch(name, world, tmp_path / name, *flags(data_dir, world, *few))
        assert outcome.code == 0, outcome.stderr
        saved.append(load_file(tmp_path / name / "weights.safetensors"))
    assert saved[0].keys() == saved[1].keys()
    for name, tensor in saved[0].items():
        assert tensor == pytest.approx(saved[1][name], abs=1e-4), name
