"""The one writer of log lines: ``:::MLLOG {json}``, the shape of MLPerf logging.

Rank 0 prints each line on standard output; every worker also writes the same objects, without the token, to its own
``rank<r>.jsonl``, flushed per line so that a killed run loses nothing. MLPerf's key names are used where one exists;
keys of our own start with ``ecg_``. Durations are seconds. No claim of MLPerf compliance is made.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from ecg_train.errors import UserError

TOKEN = ":::MLLOG "
NAMESPACE = "ecg-train"
POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


def clean(value: Any) -> Any:
    """Return ``value`` as strict JSON allows it: numbers that are not finite become the strings nan, inf, -inf."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def record(run: str, rank: int, key: str, value: Any, event: str = POINT, **metadata: Any) -> str:
    """Return one log object as a line of JSON, without the token."""
    body = {
        "namespace": NAMESPACE,
        "time_ms": time.time_ns() // 1_000_000,
        "event_type": event,
        "key": key,
        "value": clean(value),
        "metadata": {"run": run, "rank": rank, **clean(metadata)},
    }
    return json.dumps(body, separators=(",", ":"), allow_nan=False)


class LogWriter:
    """Write the log lines of one worker."""

    def __init__(self, run: str, rank: int, folder: str | Path | None, stream: TextIO | None = None) -> None:
        """Open ``folder``/rank<rank>.jsonl for appending (None: no file); rank 0 prints to ``stream`` as well.

        Raises UserError when the file cannot be written.
        """
        self.run, self.rank = run, rank
        self._stream = (stream or sys.stdout) if rank == 0 else None
        self._file: TextIO | None = None
        if folder:
            path = Path(folder) / f"rank{rank}.jsonl"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                raise UserError(f"cannot write {path}: {error.strerror}; set ECG_RESULTS to another folder") from error

    def event(self, key: str, value: Any = None, event: str = POINT, **metadata: Any) -> None:
        """Write one line; ``event`` is POINT, START or END."""
        line = record(self.run, self.rank, key, value, event, **metadata)
        if self._file:
            self._file.write(line + "\n")
            self._file.flush()
        if self._stream:
            self._stream.write(TOKEN + line + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._file:
            self._file.close()
            self._file = None
