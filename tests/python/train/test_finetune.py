"""Fine-tuning: every strategy gives serial's result, a pretrained start is taken, bad requests are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from labelled import SEQ, write_examples
from launching import Outcome, launch, require, write_shards

from ecg_train.errors import UserError
from ecg_train.finetune import check_mode
from ecg_train.shards import ShardSet

COMMON = (
    "--mode", "finetune", "--model", "tiny", "--seq-len", str(SEQ), "--batch", "12", "--steps", "40",
    "--lr-warmup", "5", "--learning-rate", "3e-3", "--eval-batches", "2", "--calibration-steps", "1", "--timeout", "60",
)  # fmt: skip
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled data")
    write_examples(folder / "heights")
    write_examples(folder / "several", multilabel=True, per_group=True)
    write_shards(folder / "walk")
    return folder


def run(framework: str, world: int, folder: Path, out: Path, *more: str, dataset: str = "heights") -> Outcome:
    common = ("--data-dir", str(folder), "--dataset", dataset, "--expected-world", str(world))
    return launch(framework, world, out, *common, *COMMON, *more)


@pytest.fixture(scope="module")
def reference(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    outcome = run("serial", 1, folder, tmp_path_factory.mktemp("serial"))
    assert outcome.code == 0, outcome.stderr
    return outcome


def test_it_learns_and_beats_the_majority(reference) -> None:
    """A classifier that learnt nothing would give the majority's figures; this one gives far better ones."""
    (figures,) = reference.values("ecg_metrics")
    assert figures["examples"] == 50
    assert figures["accuracy"] > figures["majority"]["accuracy"] + 0.2
    assert figures["macro_f1"] > figures["majority"]["macro_f1"] + 0.2
    assert "confusion (rows: truth" in reference.stderr
    assert np.array(figures["confusion"]).sum() == 50


@pytest.mark.parametrize(
    ("framework", "more"),
    [
        *((framework, ()) for framework in ("ddp", "fsdp", "horovod", "deepspeed", "mpi")),
        *((framework, ("--accumulation", "3")) for framework in ("ddp", "mpi")),
        ("deepspeed", ("--zero-stage", "3")),
    ],
    ids=lambda x: "".join(x) if isinstance(x, tuple) else x,
)
def test_every_strategy_equals_serial(framework, more, reference, folder, tmp_path) -> None:
    """Losses, validation and test figures of two workers are those of one, to the example."""
    require(framework)
    outcome = run(framework, 2, folder, tmp_path, *more)
    assert outcome.code == 0, outcome.stderr
    assert outcome.losses()[:20] == pytest.approx(reference.losses()[:20], abs=TOLERANCE)
    assert outcome.losses() == pytest.approx(reference.losses(), abs=2e-3), "rounding grows with the steps, no more"
    (mine,), (serial,) = outcome.values("ecg_metrics"), reference.values("ecg_metrics")
    assert mine["confusion"] == serial["confusion"]
    assert mine["macro_auroc"] == pytest.approx(serial["macro_auroc"], abs=1e-3)
    assert outcome.values("ecg_metrics", rank=1) == [mine], "all workers hold the whole test"


@pytest.mark.parametrize("framework", ["ddp", "fsdp", "horovod", "deepspeed", "mpi"])
def test_only_the_head_moves(framework, folder, tmp_path) -> None:
    """With --head-only the body keeps the start's weights bit by bit, under every strategy, and the head does not."""
    from safetensors.numpy import load_file

    require(framework)
    before = run("serial", 1, folder, tmp_path / "start", "--steps", "2", "--checkpoint")
    assert before.code == 0, before.stderr
    start = tmp_path / "start" / "weights.safetensors"
    outcome = run(
        framework, 2, folder, tmp_path / "run", "--steps", "3", "--checkpoint", "--head-only", "--init-from", str(start)
    )
    assert outcome.code == 0, outcome.stderr
    old, new = load_file(start), load_file(tmp_path / "run" / "weights.safetensors")
    moved = [name for name in old if not np.array_equal(old[name], new[name])]
    assert moved == ["head.weight"]


def test_a_pretrained_start_is_taken(folder, tmp_path) -> None:
    """The body comes from the pretraining run's folder; the run says from which weights it started."""
    from safetensors.numpy import load_file

    flags = (
        "--data-dir",
        str(folder),
        "--dataset",
        "walk",
        "--model",
        "tiny",
        "--seq-len",
        "64",
        "--steps",
        "2",
        "--batch",
        "4",
    )
    pretrained = launch("serial", 1, tmp_path / "pre", *flags, "--checkpoint")
    assert pretrained.code == 0, pretrained.stderr
    outcome = run(
        "serial",
        1,
        folder,
        tmp_path / "run",
        "--head-only",
        "--checkpoint",
        "--steps",
        "2",
        "--init-from",
        str(tmp_path / "pre"),
    )
    assert outcome.code == 0, outcome.stderr
    old = load_file(tmp_path / "pre" / "weights.safetensors")
    new = load_file(tmp_path / "run" / "weights.safetensors")
    assert all(np.array_equal(old[name], new[name]) for name in old)
    assert len(outcome.values("ecg_run")[0]["init_digest"]) == 16


def test_several_classes_and_one_answer_per_recording(folder, tmp_path) -> None:
    """Of 50 test examples every 5 are one recording, so the test has 10 answers, the same for two workers."""
    outcomes = [
        run(name, world, folder, tmp_path / name, dataset="several") for name, world in (("serial", 1), ("ddp", 2))
    ]
    for outcome in outcomes:
        assert outcome.code == 0, outcome.stderr
    serial, ddp = (outcome.values("ecg_metrics")[0] for outcome in outcomes)
    assert serial["examples"] == serial["recordings"] == 10
    assert serial["confusion"] is None
    assert [c["tp"] for c in serial["per_class"]] == [c["tp"] for c in ddp["per_class"]]


def test_bad_requests_are_refused(folder, tmp_path) -> None:
    """Wrong mode, wrong length, weights of another model or none: status 2 and the next command, no log begun."""
    pretrain, labelled = ShardSet.open(folder / "walk", "train", SEQ), ShardSet.open(folder / "heights", "train", SEQ)
    with pytest.raises(UserError, match="make examples DATASET=walk"):
        check_mode("finetune", pretrain)
    with pytest.raises(UserError, match="MODE=finetune"):
        check_mode("pretrain", labelled)
    with pytest.raises(UserError, match="take SEQ=32"):
        ShardSet.open(folder / "heights", "train", SEQ + 1)
    outcome = run("serial", 1, folder, tmp_path / "a", "--init-from", str(tmp_path / "nothing"))
    assert outcome.code == 1
    assert "CHECKPOINT=1" in outcome.stderr
    other = launch(
        "serial", 1, tmp_path / "small", "--data-dir", str(folder), "--dataset", "walk", "--model", "small",
        "--seq-len", "16", "--steps", "1", "--batch", "1", "--checkpoint",
    )  # fmt: skip
    assert other.code == 0, other.stderr
    outcome = run("serial", 1, folder, tmp_path / "b", "--init-from", str(tmp_path / "small"))
    assert outcome.code == 1
    assert "take the same MODEL" in outcome.stderr


def test_rows_of_a_set_are_read_as_written(folder) -> None:
    """The rows stand side by side: none is lost between two, none overlaps."""
    shards = ShardSet.open(folder / "heights", "test", SEQ, verify=True)
    assert shards.n_windows == 50
    out = np.empty((50, shards.task.width), "<u2")
    shards.gather(np.arange(50), out)
    assert np.array_equal(out.ravel(), np.fromfile(folder / "heights" / "test-00000.bin", "<u2"))
    assert shards.task.groups(out).tolist() == [n // 5 for n in range(50)]
