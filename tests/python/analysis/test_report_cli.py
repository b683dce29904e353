"""The command as a user starts it: exit status, one clear line on standard error, files whole or untouched."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import TOKEN, identity, rank_lines, write_run

ROOT = Path(__file__).resolve().parents[3]
FILES = ["report.txt", "runs.csv", "steps.csv"]


def run(*args: str | Path, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess:
    keep = {k: v for k, v in os.environ.items() if k != "ECG_RESULTS"}
    keep |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"} | env
    command = [sys.executable, "-m", "analysis", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=keep, timeout=60, check=False)


def report(results: Path, *args: str | Path, **more) -> subprocess.CompletedProcess:
    return run("report", "--results", results, *args, **more)


def left(results: Path) -> list[str]:
    """Return what lies beside the runs; nothing temporary may stay."""
    return sorted(p.name for p in results.iterdir() if p.name != "runs")


@pytest.fixture
def results(tmp_path):
    write_run(tmp_path, "d1", 0.1, calibration=lambda r: 0.1)
    write_run(tmp_path, "d2", 0.06, world=2, calibration=lambda r: 0.05)
    return tmp_path


def test_a_sound_folder(results):
    done = report(results)
    assert done.returncode == 0, done.stderr
    assert left(results) == ["report"]
    assert sorted(p.name for p in (results / "report").iterdir()) == FILES
    assert done.stdout == (results / "report" / "report.txt").read_bytes()
    assert b"baseline ddp at 1" in done.stdout
    assert done.stderr.decode().startswith("wrote ")


@pytest.mark.parametrize("args", [(), ("report",)])
def test_help(args):
    done = run(*args, "--help")
    assert done.returncode == 0
    assert b"Usage:" in done.stdout


def test_the_environment_names_the_results(results):
    assert run("report", "-o", results / "x", ECG_RESULTS=str(results)).returncode == 0
    assert sorted(p.name for p in (results / "x").iterdir()) == FILES


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no input"),
        (("--results", "nowhere"), "nowhere/runs is no folder"),
        (("nofile",), "nofile does not exist"),
        (("--results", ".", "--warmup", "x"), "--warmup is 'x'"),
        (("--results", ".", "--format", "xml"), "'xml' is not one of"),
        (("--jobs", "0"), "--jobs"),
        (("--colour",), "No such option"),
    ],
)
def test_bad_requests_write_nothing(tmp_path, args, said):
    done = run("report", *args, cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_no_runs_yet(tmp_path):
    (tmp_path / "runs").mkdir()
    done = report(tmp_path)
    assert (done.returncode, left(tmp_path)) == (2, [])
    assert b"holds no run" in done.stderr


def damage(results: Path, kind: str) -> None:
    log = results / "runs" / "d1" / "log"
    text = log.read_bytes()
    if kind == "zero bytes":
        log.write_bytes(b"")
    elif kind == "cut line":
        log.write_bytes(text[:-40])
    elif kind == "junk":
        log.write_bytes(text + bytes(range(256)) * 4 + b"\n")
    elif kind == "crlf":
        log.write_bytes(text.replace(b"\n", b"\r\n"))
    elif kind == "interleaved":
        other = (results / "runs" / "d2" / "log").read_bytes().splitlines(keepends=True)
        mixed = [part for pair in zip(text.splitlines(keepends=True), other, strict=False) for part in pair]
        log.write_bytes(b"".join(mixed))
    elif kind == "broken line":
        log.write_bytes(text.replace(b'"step_time":0.1,', b'"step_time":,', 1))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("zero bytes", "runs/d1/log: the file is empty (zero bytes)"),
        ("cut line", "cut in the middle of the line"),
        ("junk", "binary junk in"),
        ("crlf", "lines end in CRLF, read as LF"),
        ("interleaved", "lines of 2 runs are interleaved (d1, d2), separated by metadata.run"),
        ("broken line", "runs/d1/log:5: cut or garbled JSON"),
    ],
)
def test_damaged_logs_give_a_whole_report_and_one_line_each(results, kind, said):
    """The workers' own files hold the steps, so the numbers are those of the sound folder."""
    whole = report(results, "--format", "json")
    damage(results, kind)
    done = report(results, "--format", "json")
    assert done.returncode == 3
    lines = done.stderr.decode().splitlines()
    assert [said in text for text in lines] == [True, False], lines
    assert lines[1].startswith("wrote ")
    assert sorted(p.name for p in (results / "report").iterdir()) == FILES
    times = [[(r["run"], r["step_time_s"]) for r in json.loads(d.stdout)["runs"]] for d in (whole, done)]
    assert times[0] == times[1]
    assert said in (results / "report" / "report.txt").read_text()


@pytest.mark.parametrize("kind", ["zero bytes", "cut line", "junk", "crlf", "broken line"])
def test_damaged_logs_without_workers_files(results, kind):
    for path in (results / "runs" / "d1").glob("*.jsonl"):
        path.unlink()
    damage(results, kind)
    done = report(results, "--format", "csv")
    assert done.returncode == 3
    rows = {r["run"]: r for r in csv.DictReader(io.StringIO(done.stdout.decode()))}
    assert rows["d1"]["status"] == ("no-data" if kind == "zero bytes" else "ok")
    assert rows["d1"]["steps_found"] == {"zero bytes": "0", "broken line": "29"}.get(kind, "30")
    assert rows["d1"]["step_time_s"] == ("" if kind == "zero bytes" else "0.1")


def test_nan_losses_are_a_status_not_damage(results):
    write_run(results, "n", 0.1, end="aborted", rc=1, steps=range(1, 4), loss=lambda s: "nan" if s == 3 else 5.0)
    done = report(results)
    assert done.returncode == 0
    assert b"1 diverged" in done.stdout
    assert b"loss is not finite at step 3" in done.stdout


def test_standard_input(tmp_path):
    """A log through a pipe: tables only, nothing is written unless -o says where."""
    text = "".join(f"[1,0]<stdout>:{TOKEN}{t}\n" for t in rank_lines("r", 0, identity(), lambda r, s: 0.1))
    done = run("report", "-", "--format", "csv", stdin=text.encode(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [r["measured_steps"] for r in csv.DictReader(io.StringIO(done.stdout.decode()))] == ["25"]
    assert (list(tmp_path.iterdir()), done.stderr) == ([], b"")
    assert run("report", "-", "-o", "out", stdin=text.encode(), cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == FILES
    nothing = run("report", "-", cwd=tmp_path)
    assert nothing.returncode == 3
    assert b"<stdin>: the file is empty" in nothing.stderr


def test_paths_may_be_files_and_run_folders(results):
    folder = results / "runs"
    done = run(
        "report", folder / "d1", folder / "d2" / "rank1.jsonl", folder / "d2" / "rank0.jsonl", "--format", "json"
    )
    assert done.returncode == 0
    assert {r["run"]: r["workers_seen"] for r in json.loads(done.stdout)["runs"]} == {"d1": 1, "d2": 2}
    assert left(results) == []
    assert run("report", results).returncode == 2


def test_strict(results):
    assert report(results, "--strict").returncode == 0
    write_run(results, "bad", 0.1, end="cut", rc=9, steps=range(1, 4))
    assert report(results).returncode == 0
    done = report(results, "--strict")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("error: --strict")


def test_an_older_report_stays_when_the_new_one_fails(results):
    assert report(results).returncode == 0
    before = {p.name: p.read_bytes() for p in (results / "report").iterdir()}
    assert report(results, "--warmup", "-3").returncode == 2
    (results / "file").touch()
    done = report(results, "-o", results / "file")
    assert (done.returncode, done.stdout) == (2, b"")
    assert {p.name: p.read_bytes() for p in (results / "report").iterdir()} == before


def test_an_unknown_baseline_is_refused(results):
    done = report(results, "--baseline", "horovd")
    assert (done.returncode, left(results)) == (2, [])
    assert b"there is: ddp" in done.stderr


def test_a_full_disk_leaves_nothing_half_written(results):
    """File size limit instead of a full disk: the write fails half way in the same manner."""
    limit = "import resource,runpy,signal,sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); sys.argv[0]='analysis';"
    limit += "runpy.run_module('analysis', run_name='__main__')"
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", limit, "report", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, env=env, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert left(results) == []


def test_a_reader_that_goes_away_is_no_traceback(results):
    command = f"{sys.executable} -m analysis report --results {results} | head -1"
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=env, timeout=60, check=False)
    assert b"Traceback" not in done.stderr


def test_the_bench_says_what_it_does_and_runs_small(tmp_path):
    bench = ROOT / "bench" / "bench_report.py"
    done = subprocess.run([sys.executable, bench, "--help"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    command = [sys.executable, bench, "--lines", "30000", "--shape", "workers", "--repeat", "1"]
    command += ["--folder", tmp_path, "--out", tmp_path / "report.csv"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "report.csv", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["MB_per_s"]) > 0
    assert [p.name for p in tmp_path.iterdir()] == ["report.csv"]
