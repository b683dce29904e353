"""Synthetic ECG: genuine WFDB that looks like ECG, the same bytes from the same seed, and a set marked
synthetic."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import wfdb
from click.testing import CliRunner
from scipy.signal import find_peaks

from data_prep import synthetic
from data_prep.cli import main
from data_prep.errors import WorkError
from ecg_train.errors import UserError
from ecg_train.shards import ShardSet

HOURS = 30 / 3600  # three records of ten seconds, the least there is


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    assert list(synthetic.write_records(folder, HOURS, seed=5, jobs=2)) == [1, 2, 3]
    return folder


def test_records_are_wfdb_of_twelve_leads(records):
    headers = sorted(records.rglob("*.hea"))
    assert [path.stem for path in headers] == ["p000_0", "p001_0", "p002_0"]
    rates = []
    for path in headers:
        record = wfdb.rdrecord(str(path.with_suffix("")))
        rates.append(record.fs)
        assert record.sig_name == list(synthetic.LEADS)
        assert set(record.fmt) == {"16"}
        assert set(record.units) == {"mV"}
        assert record.p_signal.shape == (10 * record.fs, 12)
        assert record.comments[0].startswith("synthetic: neurokit2")
        assert wfdb.rdheader(str(path.with_suffix(""))).sig_len == 10 * record.fs
    assert rates == [360, 500, 360]


def test_signal_has_beats_at_a_human_rate(records):
    """R peaks of lead II: 45 to 125 a minute, at intervals that vary, but not wildly, and of one height."""
    for path in records.rglob("*.hea"):
        record = wfdb.rdrecord(str(path.with_suffix("")))
        lead = np.nan_to_num(record.p_signal[:, 1])
        assert 0.5 < np.ptp(lead) < 4  # mV
        peaks, found = find_peaks(lead, prominence=0.6 * np.ptp(lead), distance=0.35 * record.fs)
        intervals = np.diff(peaks) / record.fs
        assert 45 < 60 / np.median(intervals) < 125
        assert 0.005 < intervals.std() / intervals.mean() < 0.2
        assert found["prominences"].std() < 0.2 * found["prominences"].mean()  # no beat lost by the solver


def test_limb_leads_obey_einthoven(records):
    """III = II - I, aVR = -(I + II) / 2, aVL = I - II / 2, aVF = II - I / 2, within rounding to 1 uV."""
    record = wfdb.rdrecord(str(records / "p001" / "p001_0"))
    lead = dict(zip(record.sig_name, record.p_signal.T, strict=True))
    one, two = lead["I"], lead["II"]
    for name, wanted in (("III", two - one), ("aVR", -(one + two) / 2), ("aVL", one - two / 2), ("aVF", two - one / 2)):
        assert np.nanmax(np.abs(lead[name] - wanted)) < 0.0025


def test_patients_and_leads_differ(records):
    """No lead of any patient repeats another: each pair is at least 50 uV apart somewhere."""
    signals = [wfdb.rdrecord(str(p.with_suffix(""))).p_signal[:3000] for p in sorted(records.rglob("*.hea"))]
    leads = [lead for signal in signals for lead in signal.T]
    assert len(leads) == 36
    for one, other in itertools.combinations(leads, 2):
        assert np.nanmax(np.abs(one - other)) > 0.05  # mV


def test_same_seed_same_bytes_whatever_the_processes(records, tmp_path):
    list(synthetic.write_records(tmp_path, HOURS, seed=5, jobs=1))
    assert contents(tmp_path) == contents(records)


def test_another_seed_gives_another_signal():
    one, other = (synthetic.simulate(synthetic.plan(HOURS, seed)[0]) for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_finished_records_are_kept_and_the_others_made(records, tmp_path, monkeypatch):
    list(synthetic.write_records(tmp_path, HOURS, seed=5, jobs=1))
    (tmp_path / "p001" / "p001_0.hea").unlink()  # as after a kill: the header comes last
    kept = tmp_path / "p000" / "p000_0.dat"
    before = kept.stat().st_mtime_ns
    list(synthetic.write_records(tmp_path, HOURS, seed=5, jobs=1))
    assert contents(tmp_path) == contents(records)
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize("hours", [1e-9, 0.005, 0.01, 0.1, 0.3, 1, 2.02, 100])
def test_plan_lasts_as_long_as_asked(hours):
    plans = synthetic.plan(hours, 1)
    seconds = sum(p.samples / p.rate for p in plans)
    assert seconds == pytest.approx(max(30, hours * 3600), rel=1e-3)
    assert len({p.name for p in plans}) == len(plans)
    assert len({p.patient for p in plans}) >= 3
    assert max(p.samples / p.rate for p in plans) <= synthetic.RECORD_SECONDS + 0.01
    assert {p.rate for p in plans} == {360, 500}


@pytest.mark.parametrize("text", ["0", "-1", "abc", "", "nan", "inf", "1000.1", "1e400"])
def test_impossible_hours_are_refused(text):
    with pytest.raises(UserError, match=r"HOURS=.*above 0 and at most 1000"):
        synthetic.check_hours(text)


def test_command_makes_a_set_that_is_marked_and_leaves_nothing_else(tmp_path):
    out = tmp_path / "data folder"
    arguments = ["synthetic", "--hours", str(HOURS), "--seed", "5", "--out", str(out), "--jobs", "2"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == ["synthetic"]
    manifest = json.loads((out / "synthetic" / "manifest.json").read_text())
    assert manifest["synthetic"] is True
    assert len(manifest["records"]) == 3
    assert manifest["skipped"] == []
    assert {record["split"] for record in manifest["records"]} == {"train", "val", "test"}
    for split in ("train", "val", "test"):
        shards = ShardSet.open(out / "synthetic", split, 64, verify=True)
        assert shards.synthetic
        assert shards.tokens == 12 * (1000 + 3)  # ten seconds at 100 Hz, and begin, lead, end

    before = contents(out)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "nothing to do" in result.output
    assert contents(out) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hours", "0"], "HOURS=0"),
        (["--hours", "1", "--seed", "-1"], "SEED=-1"),
        (["--hours", "1", "--dataset", "../../etc"], "../../etc"),
        (["--hours", "1", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_requests_are_one_line_and_write_nothing(tmp_path, arguments, message):
    result = CliRunner().invoke(main, ["synthetic", "--out", str(tmp_path / "out"), *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_missing_library_is_said(monkeypatch, tmp_path):
    def absent(name):
        raise synthetic.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(synthetic.metadata, "version", absent)
    with pytest.raises(UserError, match="neurokit2, which is not installed; run: make setup"):
        synthetic.make(1, 1, tmp_path, "synthetic")


def test_full_disk_is_a_failure_that_says_how_to_go_on(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(synthetic, "_write", full)
    monkeypatch.setattr(synthetic.pool, "run", lambda function, tasks, jobs, folder: iter([(0, function(*tasks[0]))]))
    with pytest.raises(WorkError, match="No space left on device; free some space and run the same command again"):
        synthetic.make(HOURS, 1, tmp_path, "synthetic")
    assert not (tmp_path / "synthetic").exists()
