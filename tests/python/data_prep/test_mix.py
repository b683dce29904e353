"""Mixtures: a shard set that draws its training windows from several others, by weight."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from prep_records import beats, write_record

from data_prep.convert import convert
from data_prep.mix import mix
from ecg_train.errors import UserError
from ecg_train.loader import Loader
from ecg_train.shards import ShardSet


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two sets of unlike size: `one` has two leads, `two` one and twice the records."""
    for i in range(6):
        write_record(tmp_path / "raw/one", f"r{i}", [beats(40, 250, i), beats(40, 250, 90 + i, 0.5)])
    for i in range(12):
        write_record(tmp_path / "raw/two", f"r{i}", [beats(30, 250, 40 + i)])
    for name in ("one", "two"):
        convert(name, tmp_path / "raw" / name, tmp_path / "data", 1)
    return tmp_path / "data"


def test_the_batches_hold_windows_of_the_members_by_weight(data: Path) -> None:
    """Of each 4 windows that the loader delivers 3 are windows of the first member and 1 of the second."""
    mix("both", ["one", "two"], [3, 1], data)
    shards = ShardSet.open(data / "both", "train", 64, verify=True)
    members = {}
    for name in ("one", "two"):
        alone = ShardSet.open(data / name, "train", 64)
        rows = np.empty((alone.n_windows, 65), "<u2")
        alone.gather(np.arange(alone.n_windows), rows)
        members[name] = {row.tobytes() for row in rows}
    assert not members["one"] & members["two"]
    assert shards.n_windows == sum(map(len, members.values()))
    with Loader(shards, shards.order(5), 8, 0, 1) as loader:
        for _ in range(50):
            (batch,), _ = loader.next()
            owner = [[name for name, rows in members.items() if row.astype("<u2").tobytes() in rows] for row in batch]
            assert owner.count(["one"]) == 6
            assert owner.count(["two"]) == 2


def test_every_split_and_record_of_the_members_is_there(data: Path, prep) -> None:
    """inspect verifies the mixture; records keep their place, under names that cannot collide; without weights the
    shares are those of the sizes."""
    whole = mix("both", ["one", "two"], None, data)
    members = [json.loads((data / name / "manifest.json").read_text()) for name in ("one", "two")]
    assert (
        len(whole["records"]) == sum(len(m["records"]) for m in members) == len({r["record"] for r in whole["records"]})
    )
    for split in ("train", "val", "test"):
        assert whole["splits"][split]["tokens"] == sum(m["splits"][split]["tokens"] for m in members)
    for record in whole["records"]:
        name, _, rest = record["record"].partition("/")
        before = next(r for m in members if m["dataset"] == name for r in m["records"] if r["record"] == rest)
        old = np.fromfile(data / name / before["shard"], "<u2")[before["start"] :][: before["tokens"]]
        new = np.fromfile(data / "both" / record["shard"], "<u2")[record["start"] :][: record["tokens"]]
        assert np.array_equal(old, new)
    sizes = [m["splits"]["train"]["tokens"] for m in members]
    first, second = (m["weight"] for m in whole["mixture"])
    assert first / (first + second) == pytest.approx(sizes[0] / sum(sizes), abs=1e-3)
    seen = prep("inspect", "--dataset", "both", "--data", data, "--seq-len", 64)
    assert seen.returncode == 0
    assert "mixture: of the training windows one " in seen.stdout


def test_a_mixture_outlives_its_members(data: Path) -> None:
    """Its shards are files of their own right: removing a member harms nothing."""
    mix("both", ["one", "two"], [1, 1], data)
    for file in (data / "one").iterdir():
        file.unlink()
    assert ShardSet.open(data / "both", "train", 64, verify=True).n_windows > 0


@pytest.mark.parametrize(
    ("name", "members", "weights", "words"),
    [
        ("both", ["one"], None, "two or more"),
        ("both", ["one", "one"], None, "two or more"),
        ("one", ["one", "two"], None, "members"),
        ("both", ["one", "none"], None, "is not there"),
        ("both", ["one", "two"], [1, 2, 3], "2 whole numbers"),
        ("both", ["one", "two"], [0, 1], "1 to 1000"),
        ("../x", ["one", "two"], None, "no data set name"),
    ],
)
def test_what_cannot_be_mixed_is_refused(data: Path, name, members, weights, words) -> None:
    before = sorted(data.rglob("*"))
    with pytest.raises(UserError, match=words):
        mix(name, members, weights, data)
    assert sorted(data.rglob("*")) == before


def test_sets_of_other_tokens_and_other_mixtures_are_refused(data: Path) -> None:
    mix("both", ["one", "two"], None, data)
    with pytest.raises(UserError, match="mixture itself"):
        mix("more", ["one", "both"], None, data)
    path = data / "two" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["tokenizer"]["vocab_size"] = 512
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="vocab_size differ"):
        mix("more", ["one", "two"], None, data)
    with pytest.raises(UserError, match="not a mixture"):
        mix("two", ["one", "both"], None, data)


def test_a_damaged_mixture_is_an_error_not_another_order(data: Path) -> None:
    mix("both", ["one", "two"], [1, 1], data)
    path = data / "both" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["mixture"][0]["shards"]["train"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="damaged"):
        ShardSet.open(data / "both", "train", 64)
