"""Lines: what is read, what is refused, and that the fast way and the careful way agree."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import TOKEN, line, stats

from analysis import bulk, parse
from analysis.schema import COLUMNS, STEP
from ecg_train.logline import LogWriter

N = len(COLUMNS)


def read(data: bytes, jsonl: bool = False) -> tuple[dict, parse.Found]:
    found = parse.Found()
    out: dict = {}
    for run, rank, kind, rows in parse.parse_chunk(data, jsonl, found):
        out.setdefault((run, rank, kind), []).append(rows)
    return {k: np.concatenate(v) for k, v in out.items()}, found


def careful(data: bytes, jsonl: bool, monkeypatch) -> tuple[dict, parse.Found]:
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "step_lines", lambda chunk: None)
        return read(data, jsonl)


def log(*lines: str) -> bytes:
    return "".join(TOKEN + text + "\n" for text in lines).encode()


def step(number: int, run: str = "a", rank: int = 0, time: float = 0.1) -> str:
    return line(run, rank, "tracked_stats", stats(number, time), step=number)


def test_lines_of_the_real_writer_round_trip_by_the_fast_way(tmp_path):
    """What the writer writes is what the reader reads: the log and the worker's file, numbers to the last bit."""
    out = io.StringIO()
    writer = LogWriter("run-1", 0, tmp_path, out)
    values = [stats(s, 0.1 + s / 7, 1e-7 * s, 5 + 1 / s) for s in range(1, 40)]
    for value in values:
        writer.event("tracked_stats", value, step=value["step"])
    writer.close()
    wanted = [[np.nan if (x := v.get(name)) is None else x for name in COLUMNS[:-1]] + [0.0] for v in values]
    for data in (out.getvalue().encode(), (tmp_path / "rank0.jsonl").read_bytes()):
        assert bulk.step_lines(data) is not None, "the writer's own lines must take the fast way"
        got, found = read(data)
        assert np.array_equal(got["run-1", 0, STEP], wanted, equal_nan=True)
        assert (found.lines, found.problems) == (39, [])


def test_not_finite_is_kept_apart_from_missing(tmp_path):
    out = io.StringIO()
    writer = LogWriter("r", 0, None, out)
    writer.event("tracked_stats", stats(1, 0.1, loss=float("nan"), grad=float("inf")))
    writer.event("tracked_stats", stats(2, 0.1, grad=None) | {"loss": None})
    got, found = read(out.getvalue().encode())
    rows = got["r", 0, STEP]
    assert rows[:, -1].tolist() == [3.0, 0.0]
    assert np.isnan(rows[:, 4]).all()
    assert rows[0, 5] == np.inf
    assert np.isnan(rows[1, 5])
    assert not found.problems


def test_text_before_the_token_is_ignored():
    """Launchers label lines; progress bars share them."""
    data = b"[1,0]<stdout>:" + log(step(1)) + b"10%|#   | 3/30\r" + log(step(2)) + b"epoch 1 loss 3.0\n"
    got, found = read(data)
    assert got["a", 0, STEP][:, 0].tolist() == [1, 2]
    assert (found.problems, found.junk) == ([], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        step(3)[:50],
        step(3)[:-1],
        step(3).replace(":3,", ":03,"),
        step(3).replace('"step":3', '"step":"3"'),
        step(3).replace('"step":3', '"step":3.5'),
        step(3).replace('"step":3', '"step":-3'),
        step(3).replace('"step_time":0.1', '"step_time":"0.1"'),
        step(3).replace('"step_time":0.1', '"step_time":-0.1'),
        step(3).replace('"step_time":0.1', '"step_time":NaN'),
        step(3).replace('"step_time":0.1', '"step_time":1e300'),
        step(3).replace('"step_time":0.1', '"step_time":true'),
        step(3).replace('"loss":5.0', '"loss":"5.0"'),
        step(3).replace('"rank":0', '"rank":"0"'),
        step(3).replace('"rank":0', '"rank":-1'),
        step(3).replace('"run":"a",', ""),
        step(3).replace('"run":"a"', '"run":""'),
        step(3).replace('"namespace":"ecg-train",', ""),
        "[" * 100000,
        "7",
        "",
    ],
)
def test_a_wrong_line_is_named_and_the_others_are_kept(wrong, monkeypatch):
    data = log(step(1), step(2), wrong, *(step(s) for s in range(4, 20)))
    for got, found in (read(data), careful(data, False, monkeypatch)):
        assert got["a", 0, STEP][:, 0].tolist() == [1, 2, *range(4, 20)]
        assert [at for at, _ in found.problems] == [3]


def test_lines_of_other_namespaces_and_unknown_keys_are_not_ours():
    other = line("a", 0, "tracked_stats", stats(2, 0.1)).replace("ecg-train", "mlperf")
    got, found = read(log(step(1), other, line("a", 0, "seed", 3), line("a", 0, "news", {"x": 1})))
    assert got["a", 0, STEP][:, 0].tolist() == [1]
    assert not found.problems


def test_two_writers_in_one_line():
    """Both objects are whole: both count. One was cut by the other: only the whole one counts."""
    got, found = read(TOKEN.encode() + step(1).encode() + TOKEN.encode() + step(1, rank=1).encode() + b"\n\n")
    assert {k: len(v) for k, v in got.items()} == {("a", 0, STEP): 1, ("a", 1, STEP): 1}
    assert not found.problems
    got, found = read(TOKEN.encode() + step(1).encode()[:70] + TOKEN.encode() + step(2).encode() + b"\n")
    assert got["a", 0, STEP][:, 0].tolist() == [2]
    assert len(found.problems) == 1


def test_text_after_an_object_is_told_and_the_object_is_kept():
    got, found = read(log(step(1) + "Traceback", step(2)))
    assert got["a", 0, STEP][:, 0].tolist() == [1, 2]
    assert found.problems == [(1, "text after the object")]


@pytest.mark.parametrize("cut", [4, 9, 30, 200])
def test_the_last_line_cut_short(cut):
    got, found = read(log(step(1)) + log(step(2))[:cut])
    assert got["a", 0, STEP][:, 0].tolist() == [1]
    assert found.problems == [(2, "cut in the middle of the line")]


def test_a_whole_last_line_without_its_end_counts():
    got, found = read(log(step(1), step(2))[:-1])
    assert got["a", 0, STEP][:, 0].tolist() == [1, 2]
    assert not found.problems


def test_crlf_and_junk(monkeypatch):
    data = log(step(1), step(2)).replace(b"\n", b"\r\n")
    for got, found in (read(data), careful(data, False, monkeypatch)):
        assert got["a", 0, STEP][:, 0].tolist() == [1, 2]
        assert (found.crlf, found.junk) == (2, 0)
    _, found = read(b"text\n\x00\x01\xff\xfe junk\n" + log(step(1)) + b"caf\xe9 latin\n")
    assert (found.junk, found.junk_line) == (2, 2)


def test_in_a_jsonl_file_every_line_must_be_ours():
    got, found = read(f"{step(1)}\nhello\n\n{step(2)}\n".encode(), jsonl=True)
    assert got["a", 0, STEP][:, 0].tolist() == [1, 2]
    assert [at for at, _ in found.problems] == [2]


def test_problems_are_listed_up_to_a_bound():
    _, found = read(log(*["{"] * 1000))
    assert len(found.problems) == parse.PROBLEMS_KEPT
    assert found.unlisted == 1000 - parse.PROBLEMS_KEPT


def test_only_the_last_evaluation_is_held():
    lines = [line("a", 0, "ecg_eval", {"step": s, "loss": 1.0, "tokens": 1}) for s in range(100)]
    _, found = read(log(*lines))
    assert [e.value["step"] for e in found.evals.values()] == [99]
    assert not found.events


def test_evaluations_among_steps_do_not_leave_the_fast_way(monkeypatch):
    lines = []
    for s in range(1, 60):
        lines.append(step(s))
        if s % 10 == 0:
            lines += [line("a", 0, "ecg_eval", {"step": s, "loss": 4.0, "tokens": 1}), "{broken"]
    slow = []
    real = parse._careful
    monkeypatch.setattr(parse, "_careful", lambda raw, *rest: slow.append(raw) or real(raw, *rest))
    got, found = read(log(*lines))
    assert got["a", 0, STEP][:, 0].tolist() == list(range(1, 60))
    assert len(slow) == 10
    assert [at for at, _ in found.problems] == [12, 24, 36, 48, 60]


def test_the_order_of_runs_is_told():
    _, found = read(log(step(1), step(1, "b"), step(2), step(2, "b")))
    assert (found.switches, found.runs) == (3, {"a", "b"})
    _, found = read(log(step(1), step(2), step(1, "b"), step(2, "b")))
    assert found.switches == 1


texts = st.sampled_from(
    [
        *(step(s, run, rank) for s in (1, 2, 3) for run in ("a", "b") for rank in (0, 1)),
        line("a", 0, "tracked_stats", stats(4, None)),
        line("a", 0, "tracked_stats", stats(5, 0.1, loss="nan")),
        line("a", 0, "ecg_calibration", {"step": 1, "step_time": 0.1, "data_time": 0.0}),
        line("b", 0, "ecg_eval", {"step": 3, "loss": 4.0, "tokens": 1}),
        json.dumps({"namespace": "ecg-train"}),
        "{",
        "words",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", TOKEN, "[0] " + TOKEN]), texts, st.sampled_from(["\n", "\r\n"]))))
def test_the_fast_way_and_the_careful_way_agree(parts):
    data = "".join(a + b + c for a, b, c in parts).encode()
    patch = pytest.MonkeyPatch()
    got, found = read(data)
    want, told = careful(data, False, patch)
    assert got.keys() == want.keys()
    assert all(np.array_equal(got[k], want[k], equal_nan=True) for k in got)
    assert (found.problems, found.lines, found.crlf) == (told.problems, told.lines, told.crlf)
    assert (found.runs, found.switches) == (told.runs, told.switches)
