"""Opening shard sets: every damage is one clear error; gathering: the right tokens from the right shard."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ecg_train import shards as module
from ecg_train.errors import UserError
from ecg_train.shards import ShardSet, dataset_folder


def expected_windows(shards: list[np.ndarray], seq_len: int) -> np.ndarray:
    """Return all windows by the definition, one at a time."""
    rows = [
        tokens[i * seq_len : i * seq_len + seq_len + 1]
        for tokens in shards
        for i in range(max(0, (tokens.size - 1) // seq_len))
    ]
    return np.array(rows, dtype=np.uint16).reshape(-1, seq_len + 1)


@pytest.mark.parametrize("sizes", [(1000,), (17,), (1000, 0, 16, 17, 1, 513), (33, 33)])
@pytest.mark.parametrize("rows", [1, 50, 3000])
def test_gather_gives_the_windows_of_the_definition(make_set, sizes, rows):
    """Few rows and many rows, one shard and several, shards without a window between them."""
    folder, shards = make_set(*sizes)
    opened = ShardSet.open(folder, "train", 16, verify=True)
    wanted = expected_windows(shards, 16)
    assert opened.n_windows == len(wanted)
    indices = np.random.default_rng(0).integers(0, len(wanted), rows)
    indices[-1] = len(wanted) - 1
    out = np.full((rows, 17), 9, dtype=np.uint16)
    opened.gather(indices, out)
    assert np.array_equal(out, wanted[indices])


def test_facts_of_an_opened_set(make_set):
    folder, _ = make_set(1000, 50)
    opened = ShardSet.open(folder, "train", 16)
    assert (opened.tokens, opened.vocab_size, opened.unigram_entropy) == (1050, 1024, 1.5)
    assert (opened.dataset, opened.split, opened.synthetic) == ("toy", "train", False)
    assert opened.digest == json.loads((folder / "manifest.json").read_text())["digest"]


def test_gather_checks_its_arguments(make_set):
    folder, _ = make_set(1000)
    opened = ShardSet.open(folder, "train", 16)
    for indices in ([opened.n_windows], [-1], [0, 10**15]):
        with pytest.raises(IndexError, match="there are 62"):
            opened.gather(np.array(indices), np.empty((len(indices), 17), np.uint16))
    for out in (np.empty((2, 17), np.uint16), np.empty((1, 17), np.int64), np.empty((1, 34), np.uint16)[:, ::2]):
        with pytest.raises(ValueError, match=r"shape \(1, 17\)"):
            opened.gather(np.array([0]), out)
    opened.gather(np.empty(0, np.int64), np.empty((0, 17), np.uint16))


@pytest.mark.parametrize("change", [-1, 1, -2, 2])
def test_shard_of_the_wrong_size_is_an_error_that_says_so(make_set, change):
    folder, _ = make_set(1000)
    path = folder / "train-00000.bin"
    data = path.read_bytes()
    path.write_bytes(data[:change] if change < 0 else data + b"x" * change)
    with pytest.raises(UserError) as caught:
        ShardSet.open(folder, "train", 16)
    for part in (str(path), f"{2000 + change} bytes", "wanted 2000", "make data DATASET=toy"):
        assert part in str(caught.value)


def test_changed_bytes_are_found_on_request_only(make_set):
    folder, _ = make_set(1000)
    path = folder / "train-00000.bin"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    ShardSet.open(folder, "train", 16)
    with pytest.raises(UserError, match="SHA-256"):
        ShardSet.open(folder, "train", 16, verify=True)


def test_tokens_outside_the_vocabulary_are_found_on_request(make_set, change_manifest):
    folder, _ = make_set(1100)
    change_manifest(lambda manifest: manifest["tokenizer"].update(vocab_size=1000))
    with pytest.raises(UserError, match="token 1023, vocabulary is 1000"):
        ShardSet.open(folder, "train", 16, verify=True)


def test_missing_shard_is_an_error(make_set):
    folder, _ = make_set(1000)
    (folder / "train-00000.bin").unlink()
    with pytest.raises(UserError, match=r"train-00000\.bin cannot be read: No such file"):
        ShardSet.open(folder, "train", 16)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(version=2), "version 2, wanted 1"),
        (lambda m: m.update(version="1"), "version '1', wanted 1"),
        (lambda m: m.update(format="other"), "format 'other'"),
        (lambda m: m.pop("tokenizer"), "damaged: KeyError at 'tokenizer'"),
        (lambda m: m["tokenizer"].update(vocab_size=0), "vocab_size 0, wanted 2 to 65536"),
        (lambda m: m["tokenizer"].update(vocab_size="many"), "vocab_size 'many'"),
        (lambda m: m.update(splits=[]), "no split 'train'"),
        (lambda m: m.update(splits={"train": None}), "damaged: TypeError"),
        (lambda m: m["splits"]["train"]["shards"][0].pop("tokens"), "damaged: KeyError at 'tokens'"),
        (lambda m: m["splits"]["train"]["shards"][0].update(tokens="x"), "damaged: ValueError"),
        (lambda m: m["splits"]["train"]["shards"][0].update(tokens=999), "damaged: split 'train' counts 1000 tokens"),
        (lambda m: m["splits"]["train"]["shards"][0].update(file="../../etc/passwd"), "names a shard '../../etc"),
        (lambda m: m["splits"]["train"]["shards"][0].update(file="/etc/passwd"), "names a shard '/etc"),
    ],
)
def test_wrong_manifests_are_errors(make_set, change_manifest, edit, message):
    folder, _ = make_set(1000)
    change_manifest(edit)
    with pytest.raises(UserError) as caught:
        ShardSet.open(folder, "train", 16)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b'{"format": "ecg-train-shards"}'])
def test_manifest_that_is_no_manifest(make_set, text):
    folder, _ = make_set(1000)
    (folder / "manifest.json").write_bytes(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        ShardSet.open(folder, "train", 16)


def test_edited_manifest_is_found_on_request(make_set):
    folder, _ = make_set(1000)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"synthetic": false', '"synthetic": true'))
    with pytest.raises(UserError, match="changed after it was written"):
        ShardSet.open(folder, "train", 16, verify=True)


def test_missing_set_lists_the_sets_that_are_there(make_set):
    folder, _ = make_set(1000)
    (folder.parent / ".hidden").mkdir()
    (folder.parent / ".hidden" / "manifest.json").write_text("{}")
    with pytest.raises(UserError) as caught:
        ShardSet.open(folder.parent / "mitdb", "train", 16)
    assert "holds: toy;" in str(caught.value)
    assert "make data DATASET=mitdb" in str(caught.value)


def test_missing_set_in_an_empty_or_absent_folder(tmp_path):
    for parent in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="holds no data set yet"):
            ShardSet.open(parent / "mitdb", "train", 16)


@pytest.mark.parametrize(
    "name", ["../../etc", "", ".", "..", "/etc", "a/b", "Mitdb", "x; touch y", "a" * 65, "mitdb\n"]
)
def test_names_that_are_no_data_set_names_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="no data set name"):
        dataset_folder(tmp_path, name)
    assert dataset_folder(tmp_path, "mit-db_2") == tmp_path / "mit-db_2"


def test_splits_without_a_window_and_unknown_splits(make_set):
    folder, _ = make_set(1000)
    for split, seq_len in (("empty", 16), ("train", 1000)):
        with pytest.raises(UserError, match=f"no window of {seq_len + 1} tokens"):
            ShardSet.open(folder, split, seq_len)
    assert ShardSet.open(folder, "train", 999).n_windows == 1
    with pytest.raises(UserError, match="wanted one of empty, train"):
        ShardSet.open(folder, "vall", 16)
    with pytest.raises(UserError, match="sequence length 0"):
        ShardSet.open(folder, "train", 0)


def test_both_ways_of_gathering_agree(make_set, monkeypatch):
    folder, _ = make_set(50_000)
    opened = ShardSet.open(folder, "train", 16)
    indices = np.random.default_rng(1).permutation(opened.n_windows)
    one, other = (np.empty((indices.size, 17), np.uint16) for _ in range(2))
    opened.gather(indices, one)
    monkeypatch.setattr(module, "_FEW_ROWS", 10**9)
    opened.gather(indices, other)
    assert np.array_equal(one, other)
