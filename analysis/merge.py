"""Put the workers of one run together, step by step, in blocks of constant size.

The step time of a step is the slowest worker's. Rank 0 is heard twice, in the log and in rank0.jsonl: its
rows are laid over each other by step, so nothing counts twice. A run that was started again repeats steps:
the later attempt wins from its first step on, what the earlier one had written beyond that point is
superseded, and the count is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analysis.ingest import WIDTH, Extent
from analysis.quantile import Series

BLOCK = 1 << 17  # rows held at once over all streams of a run
SMALLEST = 1 << 10  # rows of one stream read at once, however many streams there are

# Columns of a merged row. Seconds; `skew` is the longest minus the shortest data wait of the workers.
STEP, TIME, MEAN_TIME, DATA, SKEW, EDGE, LOSS, GRAD, RATE, WORKERS, FLAGS, WINDOW, SEEN = range(13)
MERGED_WIDTH = 13
DIGEST = 1 << 48  # the windows of a step are numbered modulo this (ecg_train.consumed)
EARLY = 20  # losses kept for the equal-work check


@dataclass
class Steps:
    """What the step rows of one run come to. Times are seconds, None where nothing was measured."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    superseded: int = 0
    restarts: list[int] = field(default_factory=list)
    ranks: int = 0
    partial: int = 0  # steps that some known worker lacks; outside the window
    untimed: int = 0  # steps without a step time; outside the window
    times: Series = field(default_factory=Series)  # slowest worker's, measured window
    sum_time: float = 0.0
    sum_mean: float = 0.0
    sum_data: float | None = None
    sum_skew: float | None = None
    sum_edge: float | None = None
    edges: int = 0
    early: dict[int, float] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)  # of the gradient, of the same steps
    seen: dict[int, int] = field(default_factory=dict)  # digest of the windows that all workers consumed, likewise
    all_seen: int | None = 0  # the same over all steps; None when some step or worker did not say
    final_loss: float | None = None
    not_finite_at: int | None = None
    spill: Path | None = None
    start: int = 0


def surviving(extents: list[Extent]) -> tuple[list[tuple[Extent, int]], list[int]]:
    """Return (extent, rows kept) and the steps at which a later attempt took over."""
    limit: int | None = None
    kept: list[tuple[Extent, int]] = []
    restarts = []
    for extent in reversed(extents):
        if limit is None or extent.last < limit:
            kept.append((extent, extent.rows))
        else:
            restarts.append(limit)
            head = np.searchsorted(_read(extent, 0, extent.rows)[:, 0], limit) if extent.first < limit else 0
            kept.append((extent, int(head)))
        limit = extent.first if limit is None else min(limit, extent.first)
    return kept[::-1], sorted(set(restarts))


def _read(extent: Extent, start: int, rows: int) -> np.ndarray:
    offset = (extent.start + start) * WIDTH * 8
    data = np.fromfile(extent.spill, dtype=np.float64, count=rows * WIDTH, offset=offset)
    return data.reshape(-1, WIDTH)


def _blocks(kept: list[tuple[Extent, int]], size: int) -> Iterator[np.ndarray]:
    for extent, rows in kept:
        for at in range(0, rows, size):
            yield _read(extent, at, min(size, rows - at))


class _Stream:
    """Rows of one worker from one file, with a look-ahead buffer; steps rise strictly."""

    def __init__(self, rank: int, kept: list[tuple[Extent, int]], size: int):
        self.rank = rank
        self._blocks = _blocks(kept, size)
        self.buffer = np.empty((0, WIDTH))
        self.fill()

    def fill(self) -> None:
        if not len(self.buffer):
            self.buffer = next(self._blocks, self.buffer)

    def take(self, frontier: float) -> np.ndarray:
        n = int(np.searchsorted(self.buffer[:, 0], frontier, side="right"))
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken


def aligned(streams: list[_Stream], ranks: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield steps (n,) and rows (ranks, n, WIDTH); a worker without the step has NaN in column 0."""
    column = {rank: i for i, rank in enumerate(ranks)}
    while live := [s for s in streams if len(s.buffer)]:
        frontier = min(s.buffer[-1, 0] for s in live)
        taken = [(column[s.rank], s.take(frontier)) for s in live]
        for s in live:
            s.fill()
        taken = [(c, rows) for c, rows in taken if len(rows)]
        steps = taken[0][1][:, 0]
        for _, rows in taken[1:]:
            if not np.array_equal(steps, rows[:, 0]):
                steps = np.union1d(steps, rows[:, 0])
        grid = np.full((len(ranks), len(steps), WIDTH), np.nan)
        for c, rows in reversed(taken):  # earlier sources are laid on top
            where = slice(None) if len(rows) == len(steps) else np.searchsorted(steps, rows[:, 0])
            grid[c, where] = rows
        yield steps, grid


def open_streams(sources: dict[int, list[list[Extent]]]) -> tuple[list[_Stream], list[int], int]:
    """Return the streams of a run, the steps at which it was started again and the number of superseded rows.

    `sources` holds for each rank its files' extents, the one to prefer first.
    """
    size = max(SMALLEST, BLOCK // max(1, sum(len(files) for files in sources.values())))
    streams, restarts, superseded = [], set(), 0
    for rank, files in sources.items():
        for i, extents in enumerate(files):
            kept, again = surviving(extents)
            restarts.update(again)
            if i == 0:
                superseded = max(superseded, sum(e.rows - n for e, n in kept))
            streams.append(_Stream(rank, kept, size))
    return streams, sorted(restarts), superseded


def merge(
    sources: dict[int, list[list[Extent]]], warmup: int | None, spill: Path, resumed: frozenset[int] = frozenset()
) -> Steps:
    """Merge the step rows of a run into `spill` (appended) and sum up its measured window.

    The window leaves out `warmup` steps from the first step of the run and from each later start. It is empty
    when `warmup` is None. `resumed` are first steps of later attempts, as the log tells them: one that went on right
    after the last step repeats none.
    """
    streams, restarts, superseded = open_streams(sources)
    restarts = sorted({*restarts, *resumed})
    ranks = sorted(sources)
    out = Steps(ranks=len(ranks), restarts=restarts, superseded=superseded, spill=spill)
    with open(spill, "ab") as file:
        out.start = file.tell() // (MERGED_WIDTH * 8)
        for steps, grid in aligned(streams, ranks):
            rows = _merge_block(steps, grid, len(ranks))
            if warmup is not None:
                rows[:, WINDOW] *= ~_warm(steps, warmup, restarts)
            else:
                rows[:, WINDOW] = 0
            _sum_up(out, rows, len(ranks))
            file.write(rows.data)
    return out


def _warm(steps: np.ndarray, warmup: int, restarts: list[int]) -> np.ndarray:
    warm = steps <= warmup
    for start in restarts:
        warm |= (steps >= start) & (steps < start + warmup)
    return warm


def _merge_block(steps: np.ndarray, grid: np.ndarray, ranks: int) -> np.ndarray:
    """Return merged rows (n, MERGED_WIDTH) of rows (ranks, n, WIDTH)."""
    rows = np.empty((len(steps), MERGED_WIDTH))
    present = ~np.isnan(grid[:, :, 0])
    rows[:, STEP] = steps
    rows[:, WORKERS] = present.sum(axis=0)
    if ranks == 1:
        rows[:, (TIME, MEAN_TIME)] = grid[0][:, (1, 1)]
        rows[:, (DATA, EDGE, LOSS, GRAD, RATE)] = grid[0][:, (2, 3, 4, 5, 6)]
        rows[:, SKEW] = 0 * grid[0][:, 2]
        rows[:, FLAGS] = grid[0][:, 8]
        rows[:, SEEN] = grid[0][:, 7]
        whole = present[0]
    else:
        time, data = grid[:, :, 1], grid[:, :, 2]
        # fmax and fmin pass NaN by; a step that lacks a worker stays out of the window below.
        rows[:, TIME] = np.fmax.reduce(time)
        rows[:, MEAN_TIME] = time.mean(axis=0)
        rows[:, DATA] = np.fmax.reduce(data)
        rows[:, SKEW] = data.max(axis=0) - data.min(axis=0)
        rows[:, EDGE] = np.fmax.reduce(grid[:, :, 3])
        first = np.argmax(present, axis=0)
        each = np.arange(len(steps))
        for column, source in ((LOSS, 4), (GRAD, 5), (RATE, 6)):
            rows[:, column] = grid[first, each, source]
        rows[:, FLAGS] = np.bitwise_or.reduce(np.nan_to_num(grid[:, :, 8]).astype(np.int64))
        # Exact: below 2**48 each, and a remainder is taken before 2**53. NaN where a worker is missing.
        rows[:, SEEN] = grid[0, :, 7]
        for other in grid[1:]:
            rows[:, SEEN] = (rows[:, SEEN] + other[:, 7]) % DIGEST
        whole = present.all(axis=0) & ~np.isnan(time).any(axis=0)
    rows[:, WINDOW] = whole & ~np.isnan(rows[:, TIME])
    return rows


def _sum_up(out: Steps, rows: np.ndarray, ranks: int) -> None:
    out.count += len(rows)
    if out.first is None:
        out.first = int(rows[0, STEP])
    out.last = int(rows[-1, STEP])
    out.partial += int((rows[:, WORKERS] < ranks).sum())
    out.untimed += int(np.isnan(rows[:, TIME]).sum())
    if rows[0, STEP] <= EARLY:
        for row in rows[:EARLY]:
            if row[STEP] <= EARLY and np.isfinite(row[LOSS]):
                out.early[int(row[STEP])] = float(row[LOSS])
                if np.isfinite(row[GRAD]):
                    out.norms[int(row[STEP])] = float(row[GRAD])
                if np.isfinite(row[SEEN]):
                    out.seen[int(row[STEP])] = int(row[SEEN])
    if out.all_seen is not None:
        if np.isnan(rows[:, SEEN]).any():
            out.all_seen = None
        else:
            # Each step's number is scrambled with the step, so that two steps that changed places show.
            mixed = (rows[:, SEEN].astype(np.uint64) + np.uint64(1)) * (
                2 * rows[:, STEP].astype(np.uint64) + np.uint64(1)
            )
            out.all_seen = (out.all_seen + int(mixed.sum(dtype=np.uint64))) % DIGEST
    bad = np.flatnonzero(rows[:, FLAGS].astype(np.int64) & 1)
    if len(bad) and out.not_finite_at is None:
        out.not_finite_at = int(rows[bad[0], STEP])
    out.final_loss = float(rows[-1, LOSS]) if np.isfinite(rows[-1, LOSS]) else None
    window = rows[rows[:, WINDOW] > 0]
    if not len(window):
        return
    out.times.add(window[:, TIME])
    out.sum_time += float(window[:, TIME].sum())
    out.sum_mean += float(window[:, MEAN_TIME].sum())
    # A sum over a window in which some step lacks the value would be too small: it stays missing.
    out.sum_data = _plus(out.sum_data, window[:, DATA])
    out.sum_skew = _plus(out.sum_skew, window[:, SKEW])
    edges = window[:, EDGE][~np.isnan(window[:, EDGE])]  # the last step of a run has none
    if len(edges):
        out.sum_edge = (out.sum_edge or 0.0) + float(edges.sum())
        out.edges += len(edges)


def _plus(total: float | None, values: np.ndarray) -> float:
    """Add a column; NaN once any value is missing."""
    return (total if total is not None else 0.0) + float(values.sum())


def calibration(sources: dict[int, list[list[Extent]]]) -> tuple[Series, float, int]:
    """Return the slowest worker's exchange-off step times, the mean worker's as a share of them, and the
    workers seen.
    """
    streams, _, _ = open_streams(sources)
    times, slowest, mean = Series(), 0.0, 0.0
    for _, grid in aligned(streams, sorted(sources)):
        time = grid[:, :, 1]
        time = time[:, ~np.isnan(time).any(axis=0)]
        if time.size:
            times.add(time.max(axis=0))
            slowest += float(time.max(axis=0).sum())
            mean += float(time.mean(axis=0).sum())
    return times, mean / slowest if slowest > 0 else 1.0, len(sources)
