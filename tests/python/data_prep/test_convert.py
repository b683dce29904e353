"""The conversion as a whole: same bytes for any number of jobs, nothing half-done after a kill or on a full disk."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ENV
from prep_records import beats, bytes_of, write_record

from data_prep import assemble, splits, work
from data_prep.convert import convert
from ecg_train import tokens as tk
from ecg_train.errors import UserError


def manifest_of(out: Path, dataset: str = "x") -> dict:
    return json.loads((out / dataset / "manifest.json").read_bytes())


def test_manifest_and_shards_agree(source, tmp_path, prep):
    """Every record is found where the manifest says, with its leads; counts, digests and histograms are true."""
    (source / "bad.hea").write_text("bad 1 250 100\nbad.dat 16\n")
    done = prep("convert", "--dataset", "x", "--src", source, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "8 records converted" in done.stdout
    assert "missing-signal-file 1" in done.stdout
    got = manifest_of(tmp_path)
    assert (got["format"], got["version"], got["dataset"], got["synthetic"]) == ("ecg-train-shards", 1, "x", False)
    assert got["digest"] == assemble.digest(got)
    assert [s["reason"] for s in got["skipped"]] == ["missing-signal-file"]
    assert len(got["records"]) == 8
    shards = {}
    for name, split in got["splits"].items():
        histogram = np.zeros(tk.VOCAB_SIZE, int)
        for shard in split["shards"]:
            shards[shard["file"]] = np.fromfile(tmp_path / "x" / shard["file"], "<u2")
            assert len(shards[shard["file"]]) == shard["tokens"]
            histogram += np.bincount(shards[shard["file"]], minlength=tk.VOCAB_SIZE)
        assert split["histogram"] == histogram.tolist()
        assert split["tokens"] == histogram.sum()
        assert split["unigram_entropy"] == pytest.approx(tk.entropy(histogram))
        assert split["shards"], name  # eight patients: none of the splits is empty
    for record in got["records"]:
        part = shards[record["shard"]][record["start"] : record["start"] + record["tokens"]]
        assert part[:2].tolist() == [tk.BEGIN, tk.LEAD_ID["II"]]
        assert part[-1] == tk.END
        assert (part == tk.BEGIN).sum() == len(record["leads"]) == 2
        assert record["shard"].startswith(record["split"])
    assert not (tmp_path / "x" / ".work").exists()
    text = (tmp_path / "x" / "manifest.json").read_text()
    assert str(tmp_path) not in text


def test_same_bytes_for_any_number_of_jobs(source, tmp_path):
    made = []
    for jobs in (1, 2, 5):
        convert("x", source, tmp_path / str(jobs), jobs)
        made.append(bytes_of(tmp_path / str(jobs) / "x"))
    assert made[0] == made[1] == made[2]


def test_small_shards_hold_whole_records(source, tmp_path):
    """A shard is closed before it grows over its size; reading all of them gives all records once."""
    convert("x", source, tmp_path, 2, shard_tokens=9000)
    got = manifest_of(tmp_path)
    files = [s["file"] for s in got["splits"]["train"]["shards"]]
    assert files == [f"train-{i:05d}.bin" for i in range(len(files))]
    assert len(files) > 1
    assert sum(r["tokens"] for r in got["records"]) == sum(s["tokens"] for s in got["splits"].values())
    assert all(s["tokens"] <= 9000 for s in got["splits"]["train"]["shards"])


def test_second_run_does_nothing_and_a_change_converts_again(source, tmp_path, prep):
    arguments = ("convert", "--dataset", "x", "--src", source, "--out", tmp_path)
    assert prep(*arguments).returncode == 0
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "x").iterdir()}
    again = prep(*arguments)
    assert (again.returncode, again.stderr) == (0, "")
    assert "complete and unchanged, nothing to do" in again.stdout
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "x").iterdir()} == before
    write_record(source, "r3", [beats(25, 250, 7)])
    first = manifest_of(tmp_path)["digest"]
    assert "8 records converted" in prep(*arguments).stdout
    assert manifest_of(tmp_path)["digest"] != first
    # A shard that somebody touched is not "complete and unchanged".
    os.truncate(tmp_path / "x" / "test-00000.bin", 10)
    assert "8 records converted" in prep(*arguments).stdout
    assert "nothing to do" in prep(*arguments).stdout


def test_fewer_shards_leave_no_old_ones(source, tmp_path):
    convert("x", source, tmp_path, 1, shard_tokens=9000)
    convert("x", source, tmp_path, 1)
    assert sorted(bytes_of(tmp_path / "x")) == ["manifest.json", "test-00000.bin", "train-00000.bin", "val-00000.bin"]


def test_killed_run_leaves_no_manifest_and_is_resumed(tmp_path):
    """kill -9 in the middle: no manifest, workers gone, finished records kept, the end result byte for byte."""
    for i in range(40):
        write_record(tmp_path / "raw", f"r{i:02d}", [beats(600, 250, i)])
    convert("x", tmp_path / "raw", tmp_path / "whole", 2)
    command = [sys.executable, "-m", "data_prep", "convert", "--dataset", "x", "--jobs", "2"]
    command += ["--src", str(tmp_path / "raw"), "--out", str(tmp_path / "cut")]
    folder = tmp_path / "cut" / "x"
    with subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until = time.monotonic() + 60
        while len(work.load_index(folder / ".work")) < 3 and time.monotonic() < until:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
    kept = len(work.load_index(folder / ".work"))
    assert kept >= 3
    assert bytes_of(folder) == {}
    if kept < 40:  # a fast machine may have come to the end of the records
        time.sleep(0.3)
        assert len(work.load_index(folder / ".work")) <= kept + 2, "a worker outlived its parent"
    convert("x", tmp_path / "raw", tmp_path / "cut", 1)
    assert bytes_of(folder) == bytes_of(tmp_path / "whole" / "x")
    assert not (folder / ".work").exists()


def living(group: int) -> list[str]:
    """Return the processes of a group, but for those that have ended and wait to be collected."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member) == group and state not in "ZX":
            found.append(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("times", [1, 2])
def test_interrupt_ends_at_once(tmp_path, times):
    """Ctrl-C reaches the whole process group, perhaps twice: exit 130, one line, no worker left."""
    for i in range(40):
        write_record(tmp_path / "raw", f"r{i:02d}", [beats(600, 250, i)])
    command = [sys.executable, "-m", "data_prep", "convert", "--dataset", "x", "--jobs", "2"]
    command += ["--src", str(tmp_path / "raw"), "--out", str(tmp_path)]
    with subprocess.Popen(command, env=ENV, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        until = time.monotonic() + 60
        while not work.load_index(tmp_path / "x" / ".work") and time.monotonic() < until:
            time.sleep(0.002)
        for _ in range(times):
            os.killpg(running.pid, signal.SIGINT)
            time.sleep(0.02)
        _, errors = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    until = time.monotonic() + 5
    while living(running.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not living(running.pid)
    assert bytes_of(tmp_path / "x") == {}


def test_resumed_run_does_not_read_again_what_is_kept(source, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "publish", fail)
        with pytest.raises(KeyboardInterrupt):
            convert("x", source, tmp_path, 2)
    assert bytes_of(tmp_path / "x") == {}
    monkeypatch.setattr(work, "convert", None)  # a worker that tried would fail
    convert("x", source, tmp_path, 2)
    assert len(manifest_of(tmp_path)["records"]) == 8


def test_damaged_kept_records_are_forgotten(source, tmp_path, monkeypatch):
    """Tokens that a crash of the machine spoilt do not get into a shard; the run after that is whole."""
    with monkeypatch.context() as patch:
        patch.setattr(assemble, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert("x", source, tmp_path, 1)
    (spool,) = (tmp_path / "x" / ".work").glob("part-*.tok")
    raw = bytearray(spool.read_bytes())
    raw[5000:5100] = bytes(100)
    spool.write_bytes(raw)
    with pytest.raises(RuntimeError, match="damaged"):
        convert("x", source, tmp_path, 1)
    assert bytes_of(tmp_path / "x") == {}
    convert("x", source, tmp_path, 1)
    convert("x", source, tmp_path / "fresh", 1)
    assert bytes_of(tmp_path / "x") == bytes_of(tmp_path / "fresh" / "x")


def test_file_size_limit_is_one_line_and_nothing_half_written(source, tmp_path, prep):
    """Writing stops in the middle of a spool, as on a full disk; after that the same command succeeds."""
    limit = (30_000, resource.RLIM_INFINITY)
    arguments = ("convert", "--dataset", "x", "--src", source, "--out", tmp_path, "--jobs", 2)
    full = prep(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert full.returncode == 1
    errors = [line for line in full.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "resumes" in errors[0]
    assert "Traceback" not in full.stderr
    assert bytes_of(tmp_path / "x") == {}
    assert prep(*arguments).returncode == 0
    convert("x", source, tmp_path / "fresh", 1)
    assert bytes_of(tmp_path / "x") == bytes_of(tmp_path / "fresh" / "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
@pytest.mark.parametrize("check", [True, False])
def test_full_disk(source, tmp_path, check, monkeypatch):
    """A real file system of 256 kB: refused by the estimate, and, where that is blind, stopped by the disk itself."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True)
    if mount.returncode:
        pytest.skip("this machine does not allow to mount a file system")
    for i in range(10):
        write_record(source, f"long{i}", [beats(200, 250, i)])
    if not check:
        monkeypatch.setattr("data_prep.convert._check_space", lambda *_: None)
    try:
        with pytest.raises(RuntimeError, match="free" if check else "No space left on device"):
            convert("x", source, disk, 2)
        left = [p.name for p in (disk / "x").iterdir()] if (disk / "x").exists() else []
        assert left in ([], [".work"])
        assert not list(disk.glob("x/.work/stage"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_reader_that_dies_costs_its_record_only(source, tmp_path, monkeypatch):
    real = work.convert

    def deadly(path, *rest):
        if path.name == "r2.hea":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, *rest)

    monkeypatch.setattr(work, "convert", deadly)
    convert("x", source, tmp_path, 2)
    got = manifest_of(tmp_path)
    assert [(s["record"], s["reason"]) for s in got["skipped"]] == [("r2", "reader-died")]
    assert len(got["records"]) == 7


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"--dataset": "../../etc"}, "DATASET"),
        ({"--dataset": "A"}, "DATASET"),
        ({"--dataset": "x; touch y"}, "DATASET"),
        ({"--dataset": "a" * 65}, "DATASET"),
        ({"--src": "nowhere"}, "does not exist"),
        ({"--src": "empty"}, "no WFDB header"),
        ({"--src": "broken"}, "missing-signal-file 1, unreadable-header 1"),
        ({"--src": "raw/r0.hea"}, "not a folder"),
        ({"--jobs": "0"}, "--jobs is 0"),
    ],
)
def test_bad_requests(source, tmp_path, prep, change, says):
    """Exit 2, one line, and not even an empty folder."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.hea").write_text("a 1 250 100\na.dat 16\n")
    (tmp_path / "broken" / "b.hea").write_text("no header")
    options = {"--dataset": "x", "--src": "raw", "--out": "data/deep"} | change
    got = prep("convert", *(part for pair in options.items() for part in pair), cwd=tmp_path)
    assert got.returncode == 2
    (error,) = [line for line in got.stderr.splitlines() if not line.startswith("convert: 2/2")]
    assert error.startswith("error: ")
    assert says in error
    assert got.stdout == ""
    assert not (tmp_path / "data").exists()


def test_shards_do_not_go_where_the_recordings_are(source):
    with pytest.raises(UserError, match="different folders"):
        convert("raw", source, source.parent)


def test_two_runs_at_once(source, tmp_path, monkeypatch):
    from data_prep import convert as module

    (tmp_path / "x").mkdir()
    with module._locked(tmp_path / "x"):
        monkeypatch.setattr(module._locked.__wrapped__, "__defaults__", (0.1,))
        with pytest.raises(UserError, match="another conversion"):
            convert("x", source, tmp_path)


def test_patients_are_never_split():
    rule = splits.ByHash()
    names = ["p10/p10000032/s1/1", "p10/p10000032/s2/2", "patient007/s01", "sub-03/ecg", "site/a103l", "100"]
    patients = [rule.patient(n, n.rsplit("/", 1)[-1] + ".dat") for n in names]
    assert patients == ["p10000032", "p10000032", "patient007", "sub-03", "site/a103l", "100"]
    assert rule.patient("a103l-no-len", "a103l.mat") == rule.patient("a103l", "a103l.mat")


@pytest.mark.parametrize(
    ("n", "sizes"), [(1, (1, 0, 0)), (2, (1, 1, 0)), (3, (1, 1, 1)), (10, (8, 1, 1)), (200, (160, 20, 20))]
)
def test_split_by_hash_has_tenths(n, sizes):
    got = list(splits.ByHash().assign({f"patient{i}" for i in range(n)}).values())
    assert tuple(got.count(s) for s in splits.SPLITS) == sizes


def test_real_mitdb_split(recordings, tmp_path):
    """The published halves, but for the one patient who is in both."""
    rule = splits.Mitdb()
    names = [p.stem for p in sorted((recordings / "mitdb").glob("*.hea"))]
    split = rule.assign({rule.patient(n, None) for n in names})
    of = {n: split[rule.patient(n, None)] for n in names}
    assert len(of) == 48
    assert [n for n in names if of[n] == "val"] == ["112", "119", "205", "220"]
    assert {n for n in names if of[n] == "test"} == set(splits.DS2) - {"202"}
    assert of["201"] == of["202"] == of["102"] == "train"


def test_real_dirt(recordings, tmp_path):
    """The samples of unusual formats: each converted or named with its reason, and segments are not records."""
    convert("formats", recordings / "formats", tmp_path, 2)
    got = manifest_of(tmp_path, "formats")
    assert {s["record"]: s["reason"] for s in got["skipped"]} == {
        "30": "missing-signal-file",
        "s25047/s25047-2704-05-04-10-44n": "no-ecg-lead",
    }
    names = "100_3chan 310derive a103l a103l-no-len flacformats mixedsignals s25047/s25047-2704-05-04-10-44"
    assert [r["record"] for r in got["records"]] == names.split()
    patients = {r["record"]: r["patient"] for r in got["records"]}
    assert patients["a103l"] == patients["a103l-no-len"]


def test_real_ptbxl_folds_and_labels(recordings, tmp_path):
    convert("ptbxl", recordings / "ptbxl", tmp_path, 2)
    got = manifest_of(tmp_path, "ptbxl")
    assert len(got["records"]) == 500
    assert {s["reason"] for s in got["skipped"]} == {"duplicate"}
    first = next(r for r in got["records"] if r["record"].endswith("00001_lr"))
    assert (first["patient"], first["split"]) == ("15709", "train")
    assert first["labels"] == {"scp_codes": {"NORM": 100.0, "LVOLT": 0.0, "SR": 0.0}}
    split_of = {}
    for record in got["records"]:
        assert split_of.setdefault(record["patient"], record["split"]) == record["split"]


def test_a_lock_that_its_owner_removed_is_not_held(tmp_path) -> None:
    """The first run ends and removes its work folder while a second one waits: that one must lock what is there now."""
    from data_prep.convert import WORK, _locked

    got = threading.Event()

    def second() -> None:
        with _locked(tmp_path):
            assert (tmp_path / WORK / "lock").exists()
            got.set()

    waiting = threading.Thread(target=second)
    with _locked(tmp_path):
        waiting.start()
        assert not got.wait(0.3), "two may not hold it at once"
        shutil.rmtree(tmp_path / WORK)
    waiting.join(timeout=5)
    assert got.is_set()
