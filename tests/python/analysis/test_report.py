"""The whole report on made runs: statuses, tables, numbers, formats."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import TOKEN, identity, launch, line, loss_at, rank_lines, write_run

from analysis import ingest, report
from analysis.cli import _sources
from analysis.flat import runs_csv

GOLDEN = Path(__file__).parent / "golden_report.txt"


def build(results: Path, **options) -> report.Report:
    with report.scratch(results) as folder, open(results / "steps.csv", "wb") as steps:
        return report.build(_sources((), str(results), folder), folder, steps_to=steps, **options)


def rows(found: report.Report, group: int = 0) -> dict[tuple[str, int], dict]:
    return {(r["framework"], r["world"]): r for r in found.groups[group]["rows"]}


def run_of(found: report.Report, name: str) -> dict:
    return next(r for r in found.rows if r["run"] == name)


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def wave(base: float, rank_share: float = 0.0):
    """Step times that go around in a known circle: base * 1.00, 1.02, 0.98 ..., the median is base."""
    return lambda rank, step: base * (1 + (0, 0.02, -0.02)[step % 3] + rank_share * rank)


def test_numbers_of_a_small_strong_scaling(tmp_path):
    write_run(tmp_path, "s", 0.100, framework="serial", calibration=lambda r: 0.100)
    write_run(tmp_path, "d1", 0.102, calibration=lambda r: 0.102)
    write_run(
        tmp_path,
        "d2",
        lambda rank, step: 0.060 - 0.001 * rank,
        world=2,
        calibration=lambda r: 0.052 + 0.002 * r,
        data=lambda rank, step: 0.001 * rank,
    )
    found = build(tmp_path)
    assert found.problems == []
    d2 = rows(found)["ddp", 2]
    assert d2["step_time_s"] == pytest.approx(0.060)
    assert d2["tokens_per_s"] == pytest.approx(1024 / 0.060)
    assert d2["model_flops_per_s"] == pytest.approx(6000 * 1024 / 0.060)
    assert d2["mfu"] is None
    assert d2["speedup"] == pytest.approx(0.102 / 0.060)
    assert d2["speedup_vs_serial"] == pytest.approx(0.100 / 0.060)
    assert d2["efficiency"] == pytest.approx(0.85)
    assert d2["overhead"] == pytest.approx((2 * 0.060 - 0.102) / 0.102)
    assert d2["serial_fraction"] == pytest.approx((1 / 1.7 - 1 / 2) / (1 / 2))
    assert d2["calibration_s"] == pytest.approx(0.054)
    assert d2["exposed_s"] == pytest.approx(0.006)
    assert d2["exposed_share"] == pytest.approx(0.1)
    assert d2["contention"] == pytest.approx(0.053 / 0.051 - 1)
    assert d2["imbalance"] == pytest.approx(0.060 / 0.0595)
    assert d2["data_share"] == pytest.approx(0.001 / 0.061)
    assert d2["edge_time_s"] == pytest.approx(0.001)
    lost = {k[8:]: v * 0.060 / 2 for k, v in d2.items() if k.startswith("lost_to_")}
    assert lost == pytest.approx(
        {"contention": 0.002, "imbalance": 0.001, "data_wait": 0.001, "exposed": 0.005, "remainder": 0}, abs=1e-12
    )
    assert d2["ideal"] - sum(v for k, v in d2.items() if k.startswith("lost_to_")) == pytest.approx(d2["speedup"])
    assert (d2["final_loss"], d2["eval_loss"], d2["unigram_entropy"]) == (pytest.approx(loss_at(30)), 4.0, 5.5)
    assert d2["peak_memory_bytes"] == 1 << 20
    assert d2["speedup_low"] is None


def test_the_baseline_is_the_smallest_size_and_the_same_as_that_of_the_ideal(tmp_path):
    """A comparable tool takes its ideal line from another baseline than its speedup."""
    for world, time in ((2, 0.050), (4, 0.030), (8, 0.020)):
        write_run(tmp_path, f"d{world}", time, world=world)
    found = build(tmp_path)
    table = rows(found)
    assert found.groups[0]["baseline"] == {"ddp": "ddp at 2"}
    assert [table["ddp", w]["ideal"] for w in (2, 4, 8)] == [1, 2, 4]
    assert [table["ddp", w]["efficiency"] for w in (2, 4, 8)] == pytest.approx([1, 50 / 30 / 2, 50 / 20 / 4])
    assert all(r["efficiency"] == pytest.approx(r["speedup"] / r["ideal"]) for r in table.values())
    assert all(r.get("serial_fraction") is None for r in table.values()), "Karp-Flatt needs a run of one worker"
    assert all("speedup_vs_serial" not in r for r in table.values())
    assert "baseline ddp at 2" in report.as_text(found)


def test_one_framework_may_be_the_baseline_of_all(tmp_path):
    write_run(tmp_path, "s", 0.100, framework="serial")
    write_run(tmp_path, "d1", 0.125)
    write_run(tmp_path, "d2", 0.050, world=2)
    table = rows(build(tmp_path, baseline="serial"))
    assert table["ddp", 1]["speedup"] == pytest.approx(0.8)
    assert table["ddp", 2]["speedup"] == pytest.approx(2.0)
    assert {r["baseline"] for r in table.values()} == {"serial at 1"}


def test_weak_scaling_of_one_two_and_three_workers(tmp_path):
    for world, time in ((1, 0.100), (2, 0.110), (3, 0.125)):
        write_run(tmp_path, f"w{world}", time, world=world, scaling="weak", calibration=lambda r: 0.105)
    table = rows(build(tmp_path))
    assert [table["ddp", w]["speedup"] for w in (1, 2, 3)] == pytest.approx([1, 2 / 1.1, 3 / 1.25])
    assert [table["ddp", w]["overhead"] for w in (1, 2, 3)] == pytest.approx([0, 0.1, 0.25])
    assert table["ddp", 3]["serial_fraction"] == pytest.approx((3 - 2.4) / 2)
    assert table["ddp", 3]["contention"] == pytest.approx(0.05)
    assert {r["equal_work"] for r in table.values()} == {"-"}


def test_repeats_give_medians_intervals_and_verdicts(tmp_path):
    times = ((0.100, 0.055, 0.056), (0.101, 0.056, 0.058), (0.102, 0.057, 0.060))
    for n, (one, two, other) in enumerate(times):
        write_run(tmp_path, f"a{n}", one, repeat=n)
        write_run(tmp_path, f"b{n}", two, repeat=n, world=2)
        write_run(tmp_path, f"h{n}", other, repeat=n, world=2, framework="horovod")
    table = rows(build(tmp_path))
    b = table["ddp", 2]
    assert (b["runs"], b["ok_runs"], b["measured_steps"]) == (3, 3, 75)
    assert b["step_time_s"] == pytest.approx(0.056)
    assert b["speedup"] == pytest.approx(0.101 / 0.056)
    assert 0.100 / 0.0571 < b["speedup_low"] < b["speedup"] < b["speedup_high"] < 0.102 / 0.0549
    assert b["vs_baseline"] == "differs"
    peer = table["horovod", 2]
    assert (peer["fastest_peer"], peer["vs_fastest"], "vs_fastest" in b) == ("ddp", "cannot tell", False)


def test_every_kind_of_end_keeps_a_row_with_its_reason(tmp_path):
    write_run(tmp_path, "fine", 0.1)
    write_run(tmp_path, "killed", 0.1, end="cut", rc=137, steps=range(1, 12))
    write_run(tmp_path, "lost", 0.1, end="cut", rc=None, steps=range(1, 12), world=2)
    write_run(tmp_path, "stopped", 0.1, end="aborted", rc=1, reason="stopped on request", steps=range(1, 10))
    write_run(
        tmp_path,
        "nan",
        0.1,
        end="aborted",
        rc=1,
        reason="x",
        steps=range(1, 8),
        loss=lambda s: "nan" if s == 7 else 5.0,
    )
    folder = tmp_path / "runs" / "never"
    folder.mkdir()
    left = line("never", None, "ecg_exit", {"rc": 2, "wall_time": 0.1})
    (folder / "log").write_text(
        launch("never", identity(world=2)) + "\nerror: 3 does not divide 16\n" + TOKEN + left + "\n"
    )
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "empty" / "log").touch()
    (tmp_path / "runs" / "bare").mkdir()
    found = build(tmp_path)
    assert {r["run"]: (r["status"], r["reason"]) for r in found.rows} == {
        "fine": ("ok", None),
        "killed": ("failed", "exit status 137 (SIGKILL)"),
        "lost": ("incomplete", "cut off after step 11 of 30, no run_stop"),
        "stopped": ("failed", "stopped on request"),
        "nan": ("diverged", "loss is not finite at step 7"),
        "never": ("failed", "exit status 2: 3 does not divide 16"),
        "empty": ("no-data", "no readable line"),
        "bare": ("no-data", "no readable line"),
    }
    one = rows(found)["ddp", 1]
    assert (one["ok_runs"], one["runs"], one["status"]) == (1, 4, "1 diverged, 2 failed")
    assert one["step_time_s"] == pytest.approx(0.1)
    two = rows(found)["ddp", 2]
    assert (two["ok_runs"], two["runs"], two["status"]) == (0, 2, "1 failed, 1 incomplete")
    assert two.get("speedup") is None
    assert [p.split(": ")[1] for p in found.problems] == [
        "the folder holds neither log nor rank*.jsonl",
        "the file is empty (zero bytes)",
    ]
    for name in ("killed", "lost", "stopped", "nan", "never"):
        assert run_of(found, name)["tokens_per_s"] is None


def test_an_aborted_run_that_was_started_again_and_ended_well_is_ok(tmp_path):
    who = identity()
    time = lambda rank, step: 0.1  # noqa: E731
    first = rank_lines("r", 0, who, time, steps=range(1, 16), end="aborted", reason="stopped on request")
    second = rank_lines("r", 0, who, time, steps=range(11, 31))
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "rank0.jsonl").write_text("\n".join([*first, *second]) + "\n")
    found = build(tmp_path)
    run = run_of(found, "r")
    assert (run["status"], run["steps_found"], run["measured_steps"]) == ("ok", 30, 20)
    assert "started again at step 11" in run["notes"]
    assert "5 earlier rows superseded" in run["notes"]


def test_a_log_alone_gives_rank_0s_times_and_says_so(tmp_path):
    write_run(tmp_path, "d", 0.1, world=2, files=False, calibration=lambda r: 0.09)
    found = build(tmp_path)
    row = rows(found)["ddp", 2]
    assert (row["workers_seen"], row["imbalance"], row["data_skew_s"]) == (1, None, None)
    assert row["exposed_s"] == pytest.approx(0.01)
    assert row["calibration_mean_s"] is None
    assert "1 of 2 !" in report.as_text(found)


def test_log_and_files_together_count_no_step_twice(tmp_path):
    write_run(tmp_path, "d", 0.1, world=2)
    run = run_of(build(tmp_path), "d")
    assert (run["steps_found"], run["measured_steps"], run["workers_seen"]) == (30, 25, 2)
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 31


def test_a_run_without_identity_is_not_timed_unless_told_how(tmp_path):
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    kept = [text for text in rank_lines("r", 0, identity(), lambda r, s: 0.1) if "ecg_run" not in text]
    (folder / "log").write_text("".join(TOKEN + text + "\n" for text in kept))
    run = run_of(build(tmp_path), "r")
    assert (run["status"], run["group"], run["step_time_s"]) == ("ok", None, None)
    assert run_of(build(tmp_path, warmup=10), "r")["measured_steps"] == 20


def test_synthetic_rows_are_marked(tmp_path):
    write_run(tmp_path, "s", 0.1, synthetic=True)
    write_run(tmp_path, "r", 0.1)
    found = build(tmp_path)
    assert sorted(r["synthetic"] for g in found.groups for r in g["rows"]) == [False, True]
    text = report.as_text(found)
    marked = [row for row in text.splitlines() if row.startswith("ddp ")]
    assert {row.split()[3] for row in marked} == {"real", "synthetic"}


def test_a_window_that_still_trends_is_flagged(tmp_path):
    write_run(tmp_path, "d", lambda rank, step: 0.1 - 0.001 * step)
    row = rows(build(tmp_path))["ddp", 1]
    assert row["trends"] is True
    assert row["drift"] < -0.1


def test_interleaved_runs_are_separated_and_a_concatenation_is_not_odd(tmp_path):
    a = [TOKEN + t for t in rank_lines("a", 0, identity(), wave(0.1))]
    b = [TOKEN + t for t in rank_lines("b", 0, identity(seed=2), wave(0.2))]
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    (folder / "log").write_text("".join(f"{one}\n{two}\n" for one, two in zip(a, b, strict=True)))
    found = build(tmp_path)
    assert {r["run"]: r["step_time_s"] for r in found.rows} == pytest.approx({"a": 0.1, "b": 0.2})
    assert len(found.problems) == 1
    assert "2 runs are interleaved (a, b), separated by metadata.run" in found.problems[0]
    (folder / "log").write_text("\n".join([*a, *b]) + "\n")
    assert build(tmp_path).problems == []


def test_formats_read_back(tmp_path):
    write_run(tmp_path, "d1", 0.1, calibration=lambda r: 0.1)
    write_run(tmp_path, "d2", wave(0.06), world=2, hosts=["a", "b"], end="aborted", reason='said "no", twice', rc=1)
    found = build(tmp_path)
    table = read_csv(runs_csv(found.rows))
    assert [(r["run"], r["status"]) for r in table] == [("d1", "ok"), ("d2", "failed")]
    assert table[1]["reason"] == 'said "no", twice'
    assert table[1]["row_speedup"] == ""
    assert float(table[0]["step_time_s"]) == pytest.approx(0.1)
    assert json.loads(table[1]["hosts"]) == ["a", "b"]
    assert (table[0]["synthetic"], table[0]["zero_stage"]) == ("false", "")
    body = json.loads(report.as_json(found))
    assert body["runs"][0]["step_time_s"] == pytest.approx(0.1)
    assert body["runs"][1]["row_speedup"] is None
    assert body["groups"][0]["rows"][0]["speedup"] == pytest.approx(1)
    steps = read_csv((tmp_path / "steps.csv").read_text())
    assert [int(r["step"]) for r in steps if r["run"] == "d2"] == list(range(1, 31))
    assert float(steps[0]["loss"]) == pytest.approx(loss_at(1))
    assert (steps[0]["edge_time_s"], steps[1]["edge_time_s"]) == ("", "0.001")
    assert [r["in_window"] for r in steps[:6]] == ["0"] * 5 + ["1"]
    markdown = report.as_text(found, "markdown")
    lines = [row for row in markdown.splitlines() if row.startswith("|")]
    assert len(lines) > 10
    assert all(row.endswith("|") for row in lines)


def test_steps_csv_keeps_not_finite_and_missing_apart(tmp_path):
    folder = write_run(tmp_path, 'r,"x"', 0.1, steps=range(1, 3), loss=lambda s: "nan" if s == 2 else 7.0, end="cut")
    for path in folder.iterdir():
        path.write_text(path.read_text().replace('"loss":7.0', '"loss":null'))
    build(tmp_path)
    got = read_csv((tmp_path / "steps.csv").read_text())
    assert [(r["run"], r["loss"]) for r in got] == [('r,"x"', ""), ('r,"x"', "nan")]


def alike(a, b) -> bool:
    """Compare nested values; sums over other blocks differ in the last bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == (pytest.approx(b, rel=1e-12, abs=1e-15) if isinstance(b, float) else b)


@pytest.mark.parametrize("jobs", [1, 2])
def test_small_stretches_and_processes_change_nothing(tmp_path, monkeypatch, jobs):
    """Files cut at any place give the report of the whole files, problems with their lines included."""
    write_run(tmp_path, "d2", wave(0.06, 0.01), world=2, calibration=lambda r: 0.05, log_extra="x\x00\n" + TOKEN + "{")
    write_run(tmp_path, "d1", wave(0.1), steps=range(1, 29), end="cut", rc=9)
    whole = build(tmp_path, jobs=1)
    steps = (tmp_path / "steps.csv").read_bytes()
    monkeypatch.setattr(ingest, "STRETCH", 1537)
    monkeypatch.setattr(ingest, "CHUNK", 700)
    monkeypatch.setattr(ingest, "ALONE", 0)
    cut = build(tmp_path, jobs=jobs)
    assert alike(cut.rows, whole.rows)
    assert alike(cut.groups, whole.groups)
    assert cut.problems == whole.problems
    assert (tmp_path / "steps.csv").read_bytes() == steps


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    folder = write_run(tmp_path, "d1", 0.1)
    text = (folder / "log").read_bytes()
    (folder / "log").write_bytes(b"x" * 50000 + b"\n" + text + b"y" * 50000)
    monkeypatch.setattr(ingest, "LINE_LIMIT", 4096)
    monkeypatch.setattr(ingest, "CHUNK", 1024)
    found = build(tmp_path)
    assert run_of(found, "d1")["steps_found"] == 30
    assert [p.rsplit(": ", 1)[1] for p in found.problems] == ["a line of more than 0 MiB, skipped"] * 2
    assert found.problems[0].split(":")[1] == "1"


def test_losses_of_any_size_are_strict_json(tmp_path):
    write_run(tmp_path, "s", 0.1, framework="serial", loss=lambda s: 1e308)
    write_run(tmp_path, "d", 0.1, loss=lambda s: -1e308)
    found = build(tmp_path)
    assert json.loads(report.as_json(found), parse_constant=pytest.fail)["runs"][0]["loss_deviation"] == "inf"
    assert float(read_csv((tmp_path / "steps.csv").read_text())[0]["loss"]) == -1e308


def test_a_file_that_cannot_be_opened_is_told_and_the_rest_is_read(tmp_path):
    folder = write_run(tmp_path, "d1", 0.1)
    with report.scratch(tmp_path) as scratch:
        sources = _sources((), str(tmp_path), scratch)
        (folder / "rank0.jsonl").unlink()
        found = report.build(sources, scratch)
    assert run_of(found, "d1")["steps_found"] == 30
    assert [p.split(":", 1)[1] for p in found.problems] == ["1: cannot be read: No such file or directory"]


@pytest.mark.parametrize("wrong", [{"world": "2"}, {"tokens_per_step": "x"}, {"timing_warmup": 1.5}, {"framework": 7}])
def test_an_identity_of_wrong_types_is_an_unreadable_line(tmp_path, wrong):
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    lines = rank_lines("r", 0, identity() | wrong, lambda rank, step: 0.1)
    (folder / "rank0.jsonl").write_text("\n".join(lines) + "\n")
    found = build(tmp_path)
    assert len(found.problems) == 1
    assert ":2: not one of our lines" in found.problems[0]
    assert run_of(found, "r")["group"] is None


def test_names_beyond_ascii_are_escaped(tmp_path):
    write_run(tmp_path, "d1", 0.1, device_name="Xeon\u00ae")
    assert "Xeon\\xae" in report.as_text(build(tmp_path))


def test_what_was_let_differ_is_named(tmp_path):
    write_run(tmp_path, "d1", 0.1)
    write_run(tmp_path, "d2", 0.05, world=2, code_digest="def")
    assert len(build(tmp_path).groups) == 2
    found = build(tmp_path, across=frozenset({"code_digest"}))
    assert rows(found)["ddp", 2]["speedup"] == pytest.approx(2)
    assert "these fields may differ within a table: code_digest." in report.as_text(found)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4)), min_size=1, max_size=12), end=st.floats(0, 1))
def test_no_damage_whatever_stops_the_report(tmp_path, hits, end):
    """Bytes overwritten at any place and a cut anywhere: a report all the same, and no step that was not measured."""
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    folder = write_run(tmp_path, "d1", 0.1, calibration=lambda r: 0.1, files=False)
    text = bytearray((folder / "log").read_bytes())
    for place, junk in hits:
        at = int(place * len(text))
        text[at : at + len(junk)] = junk
    (folder / "log").write_bytes(text[: int(end * len(text))])
    found = build(tmp_path)
    report.as_text(found)
    report.as_json(found)
    assert len(found.rows) >= 1
    assert sum(r["steps_found"] for r in found.rows) <= 30


def test_golden_report(tmp_path, monkeypatch):
    """The text that people see. After a change on purpose: ECG_GOLDEN=write, then read the difference."""
    for n in (1, 2):
        write_run(
            tmp_path, f"serial-1-{n}", wave(0.100 + n / 1e3), framework="serial", repeat=n, calibration=lambda r: 0.1
        )
        write_run(tmp_path, f"ddp-1-{n}", wave(0.101 + n / 1e3), repeat=n, calibration=lambda r: 0.101)
        write_run(
            tmp_path,
            f"ddp-2-{n}",
            wave(0.055 + n / 1e3),
            world=2,
            repeat=n,
            calibration=lambda r: 0.052 + r / 1e3,
            data=lambda rank, step: rank / 1e4,
        )
    write_run(tmp_path, "ds-2-1", wave(0.06), framework="deepspeed", zero_stage=1, world=2, synthetic=True)
    write_run(tmp_path, "hvd-2-1", wave(0.06), framework="horovod", world=2, end="cut", rc=137, steps=range(1, 9))
    write_run(tmp_path, "weak-3-1", wave(0.12), world=3, scaling="weak", files=False)
    (tmp_path / "runs" / "zero").mkdir()
    (tmp_path / "runs" / "zero" / "log").touch()
    monkeypatch.chdir(tmp_path)
    text = report.as_text(build(Path(".")))
    if os.environ.get("ECG_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="ascii")
    assert text == GOLDEN.read_text(encoding="ascii")
    assert max(map(len, text.splitlines())) <= 160
