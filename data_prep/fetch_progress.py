"""How far a fetch is: a bar for people, a line every few seconds for a log. Threads report, all on stderr."""

from __future__ import annotations

import sys
import threading
import time


def size_text(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class FetchProgress:
    """Count files and bytes of this run; ``total`` bytes may be unknown, and is an estimate."""

    def __init__(self, what: str, files: int, total: int | None, every: float = 5.0) -> None:
        self._what, self._files, self._total, self._every = what, files, total, every
        self._done = self._bytes = 0
        self._start = self._last = time.monotonic()
        self._guard = threading.Lock()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=what, total=total, unit="B", unit_scale=True, ascii=True, file=sys.stderr)

    def __enter__(self) -> FetchProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        else:
            print(self.line(), file=sys.stderr, flush=True)

    def bytes(self, count: int) -> None:
        """Count bytes that came; negative ones are fetched again."""
        with self._guard:
            self._bytes += count
            if self._bar is not None:
                self._bar.update(count)
            elif time.monotonic() - self._last >= self._every:
                self._last = time.monotonic()
                print(self.line(), file=sys.stderr, flush=True)

    def file(self) -> None:
        with self._guard:
            self._done += 1
            if self._bar is not None:
                self._bar.set_postfix(files=f"{self._done}/{self._files}", refresh=False)

    def line(self) -> str:
        """Return where this run stands: files, bytes, rate, time left."""
        rate = self._bytes / max(1e-9, time.monotonic() - self._start)
        text = f"{self._what}: {self._done}/{self._files} files, {size_text(self._bytes)}"
        if self._total:
            text += f" of about {size_text(max(self._total, self._bytes))}"
        text += f", {size_text(rate)}/s"
        if self._total and rate > 0 and self._done < self._files:
            text += f", {time_text(max(0.0, self._total - self._bytes) / rate)} left"
        return text
