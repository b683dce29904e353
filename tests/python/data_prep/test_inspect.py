"""Inspect: shows what is there, and says in one line what is wrong."""

import json
import os

import pytest

from data_prep.convert import convert


@pytest.fixture
def data(source, tmp_path):
    (source / "bad.hea").write_text("bad 1 250 100\nbad.dat 16\n")
    convert("x", source, tmp_path / "data", 1)
    return tmp_path / "data"


def test_table(data, prep):
    got = prep("inspect", "--dataset", "x", "--data", data, "--max-skipped", 12)
    assert (got.returncode, got.stderr) == (0, "")
    assert "data set x (recorded)" in got.stdout
    assert "leads: II 8, V1 8" in got.stdout
    assert "skipped records: missing-signal-file 1 (11.1% of all, duplicates aside)" in got.stdout
    assert "(verified)" in got.stdout
    assert got.stdout.isascii()


def test_too_many_skipped_records_are_an_error(data, source, tmp_path, prep):
    """1 of 9 is more than the 10 % that pass; a recording at a second rate is no loss and does not count."""
    got = prep("inspect", "--dataset", "x", "--data", data)
    assert got.returncode == 4
    assert "1 of 9 records were skipped (11.1%), more than the limit of 10 %" in got.stderr
    assert "(verified)" in got.stdout
    (source / "bad.hea").unlink()
    one = sorted(source.glob("*.hea"))[0]
    for name in ("00001_lr", "00001_hr"):  # PTB-XL's two rates of one recording
        (source / f"{name}.hea").write_text(one.read_text().replace(one.stem, name))
        (source / f"{name}.dat").write_bytes(one.with_suffix(".dat").read_bytes())
    convert("y", source, tmp_path / "data", 1)
    got = prep("inspect", "--dataset", "y", "--data", data)
    assert (got.returncode, got.stderr) == (0, "")
    assert "duplicate 1 (0.0% of all" in got.stdout


def test_json_agrees_with_the_manifest(data, prep):
    got = json.loads(prep("inspect", "--dataset", "x", "--data", data, "--format", "json", "--seq-len", 100).stdout)
    manifest = json.loads((data / "x" / "manifest.json").read_bytes())
    assert got["digest"] == manifest["digest"]
    for name, split in manifest["splits"].items():
        assert got["splits"][name]["tokens"] == split["tokens"]
        assert got["splits"][name]["windows"] == sum((s["tokens"] - 1) // 100 for s in split["shards"])
    assert sum(s["records"] for s in got["splits"].values()) == sum(s["patients"] for s in got["splits"].values()) == 8


def test_too_long_windows_are_none(data, prep):
    got = prep("inspect", "--dataset", "x", "--data", data, "--format", "json", "--seq-len", 10**6, "--max-skipped", 12)
    assert (got.returncode, json.loads(got.stdout)["splits"]["train"]["windows"]) == (0, 0)


def short(folder):
    path = folder / "train-00000.bin"
    os.truncate(path, path.stat().st_size - 1)


def flipped(folder):
    path = folder / "val-00000.bin"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)


def gone(folder):
    (folder / "test-00000.bin").unlink()


def edited(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"patient":"r3"', '"patient":"r4"'))


def other_version(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))


def junk(folder):
    (folder / "manifest.json").write_bytes(b"\x00\xff{junk")


def half(folder):
    path = folder / "manifest.json"
    os.truncate(path, path.stat().st_size // 2)


def lacking(folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["records"]
    path.write_text(json.dumps(manifest))


def no_manifest(folder):
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "status", "says"),
    [
        (short, 3, "train-00000.bin"),
        (flipped, 3, "val-00000.bin"),
        (gone, 3, "test-00000.bin"),
        (edited, 3, "digest"),
        (other_version, 2, "version 2"),
        (junk, 2, "not JSON"),
        (half, 2, "not JSON"),
        (lacking, 2, "records"),
        (no_manifest, 2, "is not there"),
    ],
)
def test_damage(data, prep, damage, status, says):
    damage(data / "x")
    got = prep("inspect", "--dataset", "x", "--data", data)
    assert got.returncode == status
    (error,) = got.stderr.splitlines()
    assert error.startswith("error: ")
    assert says in error
    assert bool(got.stdout) == (status == 3)


@pytest.mark.parametrize("name", ["../../etc", "nothere"])
def test_bad_names(data, prep, name):
    got = prep("inspect", "--dataset", name, "--data", data)
    assert (got.returncode, got.stdout, len(got.stderr.splitlines())) == (2, "", 1)


def test_help_of_every_command(prep):
    for arguments in (["--help"], ["convert", "--help"], ["inspect", "--help"]):
        got = prep(*arguments)
        assert (got.returncode, got.stderr) == (0, "")
        assert "Usage:" in got.stdout
