"""Examples cut out of shard sets: right place, right class, right patient; on real recordings where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import wfdb

from data_prep.convert import convert
from data_prep.examples import make
from data_prep.labels import AAMI, Superclasses, leads_of, stretch
from data_prep.splits import DS2, PACED
from ecg_train import tokens
from ecg_train.errors import UserError
from ecg_train.shards import ShardSet

RAW = Path(os.environ.get("ECG_RAW", ""))


def recordings(name: str) -> Path:
    if not os.environ.get("ECG_RAW") or not (RAW / name).is_dir():
        pytest.skip(f"ECG_RAW is not set, or has no {name}/")
    return RAW / name


def rows_of(folder: Path, split: str, seq_len: int) -> tuple[ShardSet, np.ndarray]:
    shards = ShardSet.open(folder, split, seq_len, verify=True)
    rows = np.empty((shards.n_windows, shards.task.width), "<u2")
    shards.gather(np.arange(shards.n_windows), rows)
    return shards, rows


def write(folder: Path, name: str, beats: list[int], symbols: list[str]) -> None:
    """Write a record of 20 s at 200 Hz with a spike at each beat."""
    signal = 0.05 * np.sin(np.arange(4000) / 40)
    signal[beats] += 2.0
    wfdb.wrsamp(
        name, fs=200, units=["mV"], sig_name=["MLII"], p_signal=signal[:, None], fmt=["16"], write_dir=str(folder),
        adc_gain=[200], baseline=[0],
    )  # fmt: skip
    wfdb.wrann(name, "atr", np.array(beats), symbol=symbols, fs=200, write_dir=str(folder))


def test_a_beat_stands_in_the_middle_of_its_example(tmp_path) -> None:
    """The spike of a beat is the highest token of its example, and stands where the docs say; classes as annotated."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for n in range(12):
        write(raw, f"r{n:02d}", [700 + 10 * n, 1800, 3000], ["N", "V", "+"] if n % 2 else ["A", "N", "F"])
    convert("spikes", raw, tmp_path / "data", jobs=1)
    manifest = make("spikes", "beats", raw, tmp_path / "data", seq_len=66)
    assert sum(n["examples"] for n in manifest["records"]) == 6 * 2 + 6 * 3, "'+' marks a rhythm, no beat"
    for split in ("train", "test"):
        shards, rows = rows_of(tmp_path / "data" / "spikes-beats", split, 66)
        body = shards.task.tokens(rows)
        assert (body[:, 0] == tokens.BEGIN).all()
        assert (body[:, 1] == tokens.LEAD_ID["MLII"]).all()
        assert (np.abs(body[:, 2:].astype(int).argmax(axis=1) - 32) <= 1).all()
    shards, rows = rows_of(tmp_path / "data" / "spikes-beats", "train", 66)
    counts = np.bincount(shards.task.targets(rows), minlength=5).tolist()
    assert counts == manifest["task"]["counts"] == list(shards.task.counts)
    assert list(shards.task.classes) == list(AAMI)


def test_a_beat_at_the_edge_is_filled_with_gaps() -> None:
    samples = np.arange(100, 110, dtype=np.uint16)
    out = stretch("II", samples, -2, 8)
    assert out.tolist() == [tokens.BEGIN, tokens.LEAD_ID["II"], tokens.GAP, tokens.GAP, 100, 101, 102, 103]
    assert stretch("II", samples, 8, 6).tolist()[2:] == [108, 109, tokens.GAP, tokens.GAP]
    assert stretch("?", samples, 50, 5).tolist()[1:] == [tokens.OTHER] + [tokens.GAP] * 3


def test_leads_of_a_stream() -> None:
    b, e, ii, v1 = tokens.BEGIN, tokens.END, tokens.LEAD_ID["II"], tokens.LEAD_ID["V1"]
    found = leads_of(np.array([b, ii, 70, tokens.GAP, 71, e, b, v1, 80, e, b, ii, 99, e], np.uint16))
    assert {name: x.tolist() for name, x in found.items()} == {"II": [70, tokens.GAP, 71], "V1": [80]}


def test_mitdb_as_de_chazal(tmp_path) -> None:
    """The counts of DS2 are those of de Chazal et al. 2004, table I, less record 202 (its patient is trained on)."""
    raw = recordings("mitdb")
    convert("mitdb", raw, tmp_path, jobs=2)
    manifest = make("mitdb", "beats", raw, tmp_path)
    names = {
        split: {r["record"] for r in manifest["records"] if r["split"] == split} for split in ("train", "val", "test")
    }
    assert names["test"] == set(DS2) - {"202"}
    assert not (names["train"] | names["val"] | names["test"]) & set(PACED)
    without = {s: sum(symbol in AAMI[s] for symbol in wfdb.rdann(str(raw / "202"), "atr").symbol) for s in AAMI}
    published = {"N": 44259, "S": 1837, "V": 3221, "F": 388, "Q": 7}
    found = dict(zip(AAMI, manifest["counts"]["test"], strict=True))
    for name, n in published.items():
        assert abs(found[name] + without[name] - n) <= 0.002 * n + 2, name


def test_ptbxl_superclasses(tmp_path) -> None:
    """Each recording carries the union of its statements' superclasses, and no recording is in two splits."""
    raw = recordings("ptbxl")
    convert("ptbxl", raw, tmp_path, jobs=2)
    manifest = make("ptbxl", "superclasses", raw, tmp_path, seq_len=128)
    shards, rows = rows_of(tmp_path / "ptbxl-superclasses", "test", 128)
    assert shards.task.classes == ("NORM", "MI", "STTC", "CD", "HYP")
    by_group = {r["group"]: r for r in manifest["records"] if r["split"] == "test"}
    assert set(shards.task.groups(rows).tolist()) == set(by_group)
    assert len({r["record"] for r in manifest["records"]}) == len(manifest["records"])
    assert shards.task.targets(rows).any(axis=1).all()


def test_snomed_codes_need_training_records(tmp_path) -> None:
    raw = recordings("cinc2021")
    convert("cinc", raw, tmp_path, jobs=1)
    with pytest.raises(UserError, match="--min-records"):
        make("cinc", "snomed", raw, tmp_path)
    assert not (tmp_path / "cinc-snomed").exists(), "nothing stays of a request that failed"
    manifest = make("cinc", "snomed", raw, tmp_path, fewest=3)
    assert all(code.isdigit() for code in manifest["task"]["classes"])


def test_what_is_missing_is_named(tmp_path) -> None:
    """No annotations, no table, no such set: one error that names it, and no folder left behind."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for n in range(3):
        write(raw, f"r{n}", [700, 1800], ["N", "V"])
    convert("spikes", raw, tmp_path / "data", jobs=1)
    (raw / "r1.atr").unlink()
    with pytest.raises(UserError, match=r"r1\.atr is not there"):
        make("spikes", "beats", raw, tmp_path / "data")
    with pytest.raises(UserError, match=r"scp_statements\.csv"):
        Superclasses({}, raw, 1)
    with pytest.raises(UserError, match="is not there"):
        make("other", "beats", raw, tmp_path / "data")
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["spikes"]
