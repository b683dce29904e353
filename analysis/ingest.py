"""Read files in several processes and constant memory; leave the step rows in spill files.

A file is cut into stretches of `STRETCH` bytes at line ends, small files share a task. Every task appends the
rows it meets to one spill file and returns extents: where rows of one (run, rank, kind) lie, in the order of
the file and strictly rising by step within an extent. `merge` reads them back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from analysis.parse import Event, Found, parse_chunk
from analysis.schema import COLUMNS

CHUNK = 1 << 20  # bytes decoded at once
STRETCH = 64 << 20  # bytes per task
LINE_LIMIT = 8 << 20  # a longer line is junk, and would have to be held in memory
WIDTH = len(COLUMNS)
NOTHING = Path(os.devnull)  # stands for the files of a run folder that holds none
ALONE = 8 << 20  # less input than this is read without starting processes


@dataclass(frozen=True)
class Source:
    """One input file. `shown` is its name in messages, `label` names the run when no line does."""

    path: Path
    shown: str
    label: str
    jsonl: bool


@dataclass(frozen=True)
class Extent:
    """`rows` rows at row `start` of a spill file, steps `first`..`last` strictly rising."""

    spill: Path
    start: int
    rows: int
    first: int
    last: int


Key = tuple[str, int, str]  # run, rank, kind


@dataclass
class Stretch:
    """A part of a source, from byte `start` to byte `end`, and what was found there."""

    index: int  # of the source among all
    source: Source
    start: int
    end: int
    found: Found = field(default_factory=Found)
    extents: dict[Key, list[Extent]] = field(default_factory=dict)


@dataclass
class FileResult:
    """All that one file holds, in its order."""

    source: Source
    size: int
    events: list[Event]
    problems: list[str]
    runs: set[str]
    complaint: str
    extents: dict[Key, list[Extent]]


def _chunks(path: Path, start: int, end: int, found: Found) -> Iterator[bytes]:
    """Yield whole lines that begin in [start, end): a line belongs to the stretch in which it begins."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed by the with below, which must not catch what its users raise
    except OSError as error:
        found.problem(1, f"cannot be read: {error.strerror}")
        return
    with file:
        if start:
            file.seek(start - 1)
            _to_next_line(file)
        while (left := end - file.tell()) > 0 and (data := file.read(min(CHUNK, left))):
            if not data.endswith(b"\n"):
                tail = file.readline(LINE_LIMIT)
                if len(tail) == LINE_LIMIT:
                    data = data[: data.rfind(b"\n") + 1]
                    yield data
                    found.lines += 1
                    found.problem(found.lines, f"a line of more than {LINE_LIMIT >> 20} MiB, skipped")
                    _to_next_line(file)
                    continue
                data += tail
            yield data


def _to_next_line(file: BinaryIO) -> None:
    while (part := file.readline(CHUNK)) and not part.endswith(b"\n"):
        pass


def read_task(stretches: list[Stretch], spill: Path) -> list[Stretch]:
    """Read the stretches of one task, in a worker process. Raises OSError when the spill file cannot be written."""
    written = 0
    with open(spill, "wb") as out:
        for stretch in stretches:
            source = stretch.source
            for chunk in _chunks(source.path, stretch.start, stretch.end, stretch.found):
                pending: dict[Key, list[np.ndarray]] = {}
                for run, rank, kind, rows in parse_chunk(chunk, source.jsonl, stretch.found):
                    pending.setdefault((run, rank, kind), []).append(rows)
                for key, parts in pending.items():
                    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
                    out.write(np.ascontiguousarray(rows).data)
                    stretch.extents.setdefault(key, []).extend(_extents(rows, spill, written))
                    written += len(rows)
    return stretches


def _extents(rows: np.ndarray, spill: Path, written: int) -> Iterator[Extent]:
    """Cut rows where the step does not rise: there the run was started again, or a line came twice."""
    steps = rows[:, 0].astype(np.int64)
    cuts = [0, *(np.flatnonzero(np.diff(steps) <= 0) + 1).tolist(), len(rows)]
    for a, b in pairwise(cuts):
        yield Extent(spill, written + a, b - a, int(steps[a]), int(steps[b - 1]))


def size_of(source: Source) -> int:
    """Return the bytes of a file, 0 when it cannot be asked: opening it will tell why."""
    try:
        return source.path.stat().st_size
    except OSError:
        return 0


def _plan(sources: list[Source]) -> tuple[list[list[Stretch]], list[int]]:
    """Cut the sources into tasks of about `STRETCH` bytes."""
    tasks: list[list[Stretch]] = []
    room = 0
    sizes = []
    for i, source in enumerate(sources):
        size = size_of(source)
        sizes.append(size)
        for start in range(0, max(size, 1), STRETCH):
            end = min(start + STRETCH, size)
            if not tasks or end - start > room:
                tasks.append([])
                room = STRETCH
            tasks[-1].append(Stretch(i, source, start, end))
            room -= end - start
    return tasks, sizes


def read_files(sources: list[Source], scratch: Path, pool: ProcessPoolExecutor | None) -> list[FileResult]:
    """Read all sources; results keep the order of `sources`. Raises OSError when the spill files cannot be written."""
    tasks, sizes = _plan(sources)
    spills = [scratch / f"rows-{i:06d}" for i in range(len(tasks))]
    run = map if pool is None else pool.map
    results = [FileResult(source, size, [], [], set(), "", {}) for source, size in zip(sources, sizes, strict=True)]
    stretches = [s for done in run(read_task, tasks, spills) for s in done]
    by_file: dict[int, list[Stretch]] = {}
    for stretch in stretches:
        by_file.setdefault(stretch.index, []).append(stretch)
    for index, parts in by_file.items():
        _join(results[index], sorted(parts, key=lambda s: s.start))
    return results


def _join(result: FileResult, parts: list[Stretch]) -> None:
    """Put the stretches of one file together: line numbers become those of the file."""
    name = result.source.shown
    lines = unlisted = crlf = junk = junk_line = switches = 0
    last_run = ""
    if result.source.path == NOTHING:
        result.problems.append(f"{name}: the folder holds neither log nor rank*.jsonl")
    elif result.size == 0 and not any(part.found.problems for part in parts):
        result.problems.append(f"{name}: the file is empty (zero bytes)")
    for part in parts:
        found = part.found
        result.problems.extend(f"{name}:{lines + at}: {what}" for at, what in found.problems)
        result.events.extend(found.events)
        result.events.extend(found.evals.values())
        result.runs |= found.runs
        result.complaint = found.complaint or result.complaint
        for key, extents in part.extents.items():
            result.extents.setdefault(key, []).extend(extents)
        switches += found.switches + bool(last_run and found.first_run and found.first_run != last_run)
        last_run = found.last_run or last_run
        if found.junk and not junk:
            junk_line = lines + found.junk_line
        lines, unlisted, crlf, junk = (
            lines + found.lines,
            unlisted + found.unlisted,
            crlf + found.crlf,
            junk + found.junk,
        )
    if unlisted:
        result.problems.append(f"{name}: {unlisted} more unreadable lines")
    if junk:
        result.problems.append(f"{name}:{junk_line}: binary junk in {junk} line{'s' * (junk > 1)}, ignored")
    if crlf:
        result.problems.append(f"{name}: {crlf} lines end in CRLF, read as LF")
    if switches > max(0, len(result.runs) - 1):
        names = ", ".join(sorted(result.runs)[:4])
        result.problems.append(
            f"{name}: lines of {len(result.runs)} runs are interleaved ({names}), separated by metadata.run"
        )


def workers(jobs: int | None, total: int) -> ProcessPoolExecutor | None:
    """Return a pool of `jobs` processes (default: the cores we may use), or None for little input."""
    count = jobs or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(count) if count > 1 and total > ALONE else None
