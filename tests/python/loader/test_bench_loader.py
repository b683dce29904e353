"""The measurement itself: it runs, and its table and CSV say the same. What it measures is not judged
here."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

PROGRAM = Path(__file__).resolve().parents[3] / "bench" / "bench_loader.py"


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("bench_loader", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(program, *arguments: str) -> Result:
    return CliRunner().invoke(program.main, arguments)


def test_small_run_writes_table_and_csv(program, tmp_path):
    out = tmp_path / "new folder" / "loader.csv"
    result = run(program, "--repeats", "2", "--tokens", "300000", "--rows", "4,512", "--out", str(out))
    assert result.exit_code == 0, result.output
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["epoch", "4 rows", "take 4 rows", "512 rows", "take 512 rows", "loader 4 rows", "loader 512 rows"]
    assert [row["row"] for row in rows] == names
    for row in rows:
        assert float(row["ratio"]) > 0
        assert row["row"] in result.output
    assert {row["row"] for row in rows if row["target"] == "0.5"} == {"epoch", "4 rows", "512 rows"}


def test_help_and_bad_requests(program):
    assert "--repeats" in run(program, "--help").output
    for arguments in (["--rows", "x"], ["--rows", "0"], ["--repeats", "1"]):
        assert run(program, "--tokens", "100000", *arguments).exit_code == 2
