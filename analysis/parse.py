"""Read log lines: `:::MLLOG {json}` in a log, the bare object in a rank's JSONL file.

The reader never guesses. Text before the token is ignored, a line that carries the token and cannot be read
is collected with its file and line, and a value that is missing stays missing (NaN in the arrays, an empty
cell later).

Step lines are nearly all of a log, so a chunk that holds nothing else is decoded in one call; any other chunk
goes line by line. The types are the same, so the two cannot disagree about what is valid; whatever the fast
way refuses, the careful way judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from analysis import bulk
from analysis.schema import (
    CALIBRATION,
    EVENTS,
    GRAD_NOT_FINITE,
    LONGEST,
    LOSS_NOT_FINITE,
    NAMESPACE,
    STEP,
    STEP_KEY,
    TOKEN,
    TYPED,
    AnyLine,
    Identity,
    Loss,
    Stats,
)

MIXED = 8  # fewer lines than this are not worth sorting
PROBLEMS_KEPT = 20  # per file and task; the rest is counted, so that a folder of junk cannot fill the memory
_JUNK = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_ANY_LINE = msgspec.json.Decoder(AnyLine)
_STATS = msgspec.json.Decoder(Stats)
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass
class Event:
    """One line that is not a step: where it came from and what it says."""

    run: str
    rank: int | None
    key: str
    value: Any
    metadata: dict[str, Any]


@dataclass
class Found:
    """What one stretch of one file holds. `blocks` goes to a spill file as it comes (see ingest)."""

    lines: int = 0
    events: list[Event] = field(default_factory=list)
    evals: dict[tuple[str, int | None], Event] = field(default_factory=dict)  # the last one counts; there may be many
    problems: list[tuple[int, str]] = field(default_factory=list)  # (line from 1 within the stretch, what is wrong)
    unlisted: int = 0
    complaint: str = ""  # last text line that begins with "error:", for a run that gives no reason itself
    crlf: int = 0
    junk: int = 0
    junk_line: int = 0
    first_run: str = ""
    last_run: str = ""
    switches: int = 0  # how often the run changes from one line to the next
    runs: set[str] = field(default_factory=set)

    def problem(self, line: int, what: str) -> None:
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append((line, what))
        else:
            self.unlisted += 1

    def saw(self, run: str) -> None:
        if run != self.last_run:
            self.switches += bool(self.last_run)
            self.first_run = self.first_run or run
            self.last_run = run
            self.runs.add(run)


Block = tuple[str, int, str, np.ndarray]  # run, rank, kind, rows (n, len(COLUMNS))


def _number(value: Loss) -> float:
    """Return the float behind a loss; raises ValueError for a text that is no number of the writer."""
    if value is None:
        return np.nan
    if isinstance(value, str):
        if value not in _FLOATS:
            raise ValueError(f"{value[:40]!r} is no number")
        return _FLOATS[value]
    return value


def _row(s: Stats) -> tuple[float, ...]:
    flags = 0
    loss, grad = _number(s.loss), _number(s.grad_norm)
    if s.loss is not None and not np.isfinite(loss):
        flags |= LOSS_NOT_FINITE
    if s.grad_norm is not None and not np.isfinite(grad):
        flags |= GRAD_NOT_FINITE
    for name in ("step_time", "data_time", "edge_time"):
        if (seconds := getattr(s, name)) is not None and not 0 <= seconds < LONGEST:
            raise ValueError(f"{name} is no duration")
    if not 0 <= s.step < 2**53:
        raise ValueError("step is no count")
    return (s.step, s.step_time, s.data_time, s.edge_time, loss, grad, s.learning_rate, s.windows, flags)


def _decode(piece: bytes) -> tuple[AnyLine | None, str]:
    """Return the object of a line and, if there is something wrong with it, what."""
    try:
        return _ANY_LINE.decode(piece), ""
    except (msgspec.MsgspecError, UnicodeDecodeError) as failed:
        error: Exception = failed
        text = piece.decode("utf-8", "replace")
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return None, "cut or garbled JSON"
        except RecursionError:
            return None, "JSON nested too deeply"
        if text[end:].strip():
            try:
                return _ANY_LINE.decode(text[:end].encode()), "text after the object"
            except msgspec.MsgspecError as inner:
                error = inner
        return None, f"not one of our lines ({str(error)[:80]})"


def _take(obj: AnyLine, found: Found) -> Block | None:
    """Note an event, or return the row of a step. Raises ValueError when the line says something impossible."""
    if obj.namespace != NAMESPACE:
        return None
    run, rank = obj.metadata.get("run"), obj.metadata.get("rank")
    if not isinstance(run, str) or not run:
        raise ValueError("metadata.run is missing")
    found.saw(run)
    if obj.key in ("tracked_stats", "ecg_calibration"):
        if not _is_rank(rank):
            raise ValueError("metadata.rank is missing")
        kind = STEP if obj.key == "tracked_stats" else CALIBRATION
        row = np.array([_row(_STATS.decode(obj.value))], dtype=np.float64)
        return run, rank, kind, row
    if obj.key in EVENTS:
        value = json.loads(bytes(obj.value))
        if obj.key in ("ecg_run", "ecg_launch"):
            msgspec.convert(value, Identity)  # raises where a type is wrong
        if obj.key in TYPED:
            value = msgspec.to_builtins(msgspec.convert(value, TYPED[obj.key]))
        event = Event(run, rank if _is_rank(rank) else None, obj.key, value, obj.metadata)
        if obj.key == "ecg_eval":
            found.evals[run, event.rank] = event
        else:
            found.events.append(event)
    return None


def _careful(raw: bytes, jsonl: bool, last: bool, found: Found) -> Iterator[Block]:
    """Read one line of any shape; `last` tells that it has no line end, so that it may be cut."""
    at = raw.find(TOKEN)
    if at >= 0:
        pieces = raw[at:].split(TOKEN)[1:]  # two writers may have met in one line
    elif raw.lstrip().startswith(b'{"namespace":"' + NAMESPACE.encode()) or (jsonl and raw.strip()):
        pieces = [raw]
    else:
        if _JUNK.search(raw) or not _is_utf8(raw):
            found.junk += 1
            found.junk_line = found.junk_line or found.lines
        elif (complaint := raw.find(b"error: ")) >= 0:
            found.complaint = raw[complaint + 7 :].decode().strip()[:200]
        elif last and any(raw.endswith(TOKEN[:n]) for n in range(3, len(TOKEN))):
            found.problem(found.lines, "cut in the middle of the line")
        return
    for piece in pieces:
        obj, wrong = _decode(piece.strip())
        if obj is not None:
            try:
                block = _take(obj, found)
            except (ValueError, msgspec.MsgspecError) as error:
                wrong = f"not one of our lines ({str(error)[:80]})"
            else:
                if block is not None:
                    yield block
        if wrong:
            cut = last and obj is None and piece is pieces[-1]
            found.problem(found.lines, "cut in the middle of the line" if cut else wrong)


def _is_rank(rank: Any) -> bool:
    return type(rank) is int and rank >= 0


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bulk(chunk: bytes, found: Found) -> Iterator[Block] | None:
    """Read a chunk of step lines at once, or return None and leave `found` alone."""
    decoded = bulk.step_lines(chunk)
    if decoded is None:
        return None
    rows, table = decoded
    owners = [(m.run, m.rank) for m in (r.metadata for r in rows)]
    kinds = list(dict.fromkeys(owners))
    if len(kinds) == 1:
        found.saw(kinds[0][0])
        return iter([(*kinds[0], STEP, table)])
    for run, _ in owners:
        found.saw(run)
    index = {owner: i for i, owner in enumerate(kinds)}
    which = np.array([index[o] for o in owners])
    return iter([(*owner, STEP, table[which == i]) for i, owner in enumerate(kinds)])


def parse_chunk(chunk: bytes, jsonl: bool, found: Found) -> Iterator[Block]:
    """Read whole lines (only the file's last may lack its end); yield step rows, note all else in `found`."""
    if b"\r" in chunk:
        found.crlf += chunk.count(b"}\r\n")
    if (blocks := _bulk(chunk, found)) is not None:
        for block in blocks:
            found.lines += len(block[3])
            yield block
        return
    rows = chunk.split(b"\n")
    ended = rows[-1] == b""
    if ended:
        rows.pop()
    before, rest = found.lines, range(len(rows))
    if ended and len(rows) > MIXED:
        rest = yield from _mixed(rows, found)
    for i in rest:
        found.lines = before + i + 1
        yield from _careful(rows[i].rstrip(b"\r"), jsonl, not ended and i == len(rows) - 1, found)
    found.lines = before + len(rows)


def _mixed(rows: list[bytes], found: Found) -> Generator[Block, None, Sequence[int]]:
    """Read the step lines among others at once; return the places of the lines that are left.

    Only where all lines are of one run: how runs follow each other is told from their order.
    """
    odd = [i for i, raw in enumerate(rows) if STEP_KEY not in raw]
    steps = b"\n".join([raw for raw in rows if STEP_KEY in raw])
    trial = Found()
    if not steps or (blocks := _bulk(steps + b"\n", trial)) is None or len(trial.runs) > 1:
        return range(len(rows))
    name = b'"run":' + msgspec.json.encode(trial.first_run)
    if any(b'"run":' in rows[i] and name not in rows[i] for i in odd):
        return range(len(rows))
    found.saw(trial.first_run)
    yield from blocks
    return odd
