"""Workers of one run put together: the slowest counts, nothing counts twice, the later attempt wins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis import merge
from analysis.ingest import WIDTH, Extent, _extents


def rows(steps, time=0.1, data=0.0, edge=0.0, loss=4.0):
    out = np.full((len(steps), WIDTH), np.nan)
    out[:, 0] = steps
    for column, value in ((1, time), (2, data), (3, edge), (4, loss), (5, 0.5), (6, 1e-3), (7, 0), (8, 0)):
        out[:, column] = value
    return out


class Spill:
    """Writes worker rows to a spill file and hands out their extents."""

    def __init__(self, path: Path):
        self.path, self.written = path, 0

    def put(self, *parts: np.ndarray) -> list[Extent]:
        extents: list[Extent] = []
        for part in parts:
            with open(self.path, "ab") as file:
                file.write(part.tobytes())
            extents.extend(_extents(part, self.path, self.written))
            self.written += len(part)
        return extents


@pytest.fixture
def spill(tmp_path):
    return Spill(tmp_path / "rows")


def merged(tmp_path, out: merge.Steps) -> np.ndarray:
    table = np.fromfile(tmp_path / "merged").reshape(-1, merge.MERGED_WIDTH)
    return table[out.start : out.start + out.count]


def test_the_step_time_is_the_slowest_workers(tmp_path, spill):
    a = rows([1, 2, 3], time=[0.1, 0.3, 0.2], data=[0.0, 0.01, 0.0])
    b = rows([1, 2, 3], time=[0.2, 0.1, 0.2], data=[0.0, 0.04, 0.0])
    out = merge.merge({0: [spill.put(a)], 1: [spill.put(b)]}, 0, tmp_path / "merged")
    table = merged(tmp_path, out)
    assert table[:, merge.TIME].tolist() == [0.2, 0.3, 0.2]
    assert table[:, merge.MEAN_TIME] == pytest.approx([0.15, 0.2, 0.2])
    assert table[:, merge.SKEW] == pytest.approx([0, 0.03, 0])
    assert table[:, merge.WORKERS].tolist() == [2, 2, 2]
    assert (out.count, out.first, out.last, out.ranks) == (3, 1, 3, 2)
    assert out.sum_time / out.sum_mean == pytest.approx(0.7 / 0.55)


def test_log_and_file_of_rank_0_count_once(tmp_path, spill):
    """The worker's own file is preferred, the log fills what the file lost."""
    own, log = rows([1, 2, 4], time=0.1), rows([1, 2, 3, 4], time=0.15)
    out = merge.merge({0: [spill.put(own), spill.put(log)]}, 0, tmp_path / "merged")
    assert merged(tmp_path, out)[:, merge.TIME].tolist() == [0.1, 0.1, 0.15, 0.1]
    assert (out.count, len(out.times), out.ranks) == (4, 4, 1)


def test_warmup_is_dropped_and_the_count_of_the_window_is_right(tmp_path, spill):
    """A comparable tool divides its first interval by the wrong number of steps."""
    data = rows(range(1, 31), time=[9.0] * 5 + [0.1] * 25)
    out = merge.merge({0: [spill.put(data)]}, 5, tmp_path / "merged")
    assert len(out.times) == 25
    assert out.times.quantiles([0.0, 0.5, 1.0]) == [0.1, 0.1, 0.1]


def test_no_stated_warmup_measures_nothing(tmp_path, spill):
    out = merge.merge({0: [spill.put(rows(range(1, 11)))]}, None, tmp_path / "merged")
    assert (out.count, len(out.times)) == (10, 0)


def test_after_a_restart_the_later_attempt_counts_and_warms_up_again(tmp_path, spill):
    first, second = rows(range(1, 11), time=0.1), rows(range(6, 16), time=0.2)
    out = merge.merge({0: [spill.put(first, second)]}, 2, tmp_path / "merged")
    table = merged(tmp_path, out)
    assert table[:, merge.STEP].tolist() == list(range(1, 16))
    assert table[:, merge.TIME].tolist() == [0.1] * 5 + [0.2] * 10
    assert table[:, merge.WINDOW].tolist() == [0, 0, 1, 1, 1, 0, 0, *[1] * 8]
    assert (out.restarts, out.superseded) == ([6], 5)


def test_an_attempt_that_repeats_no_step_warms_up_again_too(tmp_path, spill):
    out = merge.merge({0: [spill.put(rows(range(1, 11)))]}, 2, tmp_path / "merged", frozenset({6}))
    assert merged(tmp_path, out)[:, merge.WINDOW].tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    assert (out.restarts, out.superseded) == ([6], 0)


def test_steps_beyond_a_restart_are_not_kept(tmp_path, spill):
    """The second attempt went back to step 4 and died at 5: steps 6 to 10 of the first are of a state that is gone."""
    out = merge.merge({0: [spill.put(rows(range(1, 11)), rows([4, 5]))]}, 0, tmp_path / "merged")
    assert merged(tmp_path, out)[:, merge.STEP].tolist() == [1, 2, 3, 4, 5]
    assert out.superseded == 7


def test_a_step_that_lacks_a_worker_is_not_measured(tmp_path, spill):
    out = merge.merge({0: [spill.put(rows([1, 2, 3]))], 1: [spill.put(rows([1, 2]))]}, 0, tmp_path / "merged")
    assert merged(tmp_path, out)[:, merge.WINDOW].tolist() == [1, 1, 0]
    assert (out.partial, len(out.times)) == (1, 2)


def test_a_missing_value_stays_missing(tmp_path, spill):
    data = rows([1, 2], data=np.nan, edge=[np.nan, 0.5])
    out = merge.merge({0: [spill.put(data)]}, 0, tmp_path / "merged")
    assert np.isnan(out.sum_data)
    assert (out.sum_edge, out.edges) == (0.5, 1)


def test_calibration_is_the_slowest_workers(spill):
    sources = {r: [spill.put(rows([1, 2], time=t))] for r, t in ((0, [0.1, 0.2]), (1, [0.3, 0.1]))}
    times, share, ranks = merge.calibration(sources)
    assert times.quantiles([0.0, 1.0]) == [0.2, 0.3]
    assert share == pytest.approx((0.2 + 0.15) / (0.3 + 0.2))
    assert ranks == 2


attempts = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workers=st.lists(attempts, min_size=1, max_size=3))
def test_small_blocks_give_what_a_plain_dictionary_gives(tmp_path, workers):
    """Whatever restarts and ragged ends there are: the same steps and maxima as by brute force."""
    (tmp_path / "rows").unlink(missing_ok=True)
    (tmp_path / "merged").unlink(missing_ok=True)
    spill = Spill(tmp_path / "rows")
    truth: dict[int, dict[int, float]] = {}
    sources = {}
    for rank, tries in enumerate(workers):
        mine: dict[int, float] = {}
        parts = []
        for number, (start, length) in enumerate(tries):
            steps = list(range(start, start + length))
            times = [1.0 + rank + 10 * number + s / 100 for s in steps]
            mine = {s: t for s, t in mine.items() if s < start} | dict(zip(steps, times, strict=True))
            parts.append(rows(steps, time=times))
        for s, t in mine.items():
            truth.setdefault(s, {})[rank] = t
        sources[rank] = [spill.put(*parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "BLOCK", 0)
        patch.setattr(merge, "SMALLEST", 3)
        out = merge.merge(sources, 0, tmp_path / "merged")
    table = merged(tmp_path, out)
    assert table[:, merge.STEP].tolist() == sorted(truth)
    assert table[:, merge.TIME].tolist() == [max(truth[s].values()) for s in sorted(truth)]
    assert table[:, merge.WORKERS].tolist() == [len(truth[s]) for s in sorted(truth)]
