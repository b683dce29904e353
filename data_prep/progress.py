"""Progress on stderr: a bar for people, a line every few seconds for a log."""

from __future__ import annotations

import sys
import time


class Progress:
    """Count records; as a context manager it closes its bar."""

    def __init__(self, total: int, what: str, every: float = 5.0):
        self._total, self._what, self._every = total, what, every
        self._done = self._skipped = 0
        self._start = self._last = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no thread: processes are forked beside this bar
            self._bar = tqdm(total=total, desc=what, unit="rec", ascii=True, file=sys.stderr, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._done:
            self._line()

    def step(self, skipped: bool) -> None:
        self._done += 1
        self._skipped += skipped
        if self._bar is not None:
            self._bar.update()
            if self._skipped:
                self._bar.set_postfix(skipped=self._skipped, refresh=False)
        elif time.monotonic() - self._last >= self._every:
            self._line()

    def _line(self) -> None:
        self._last = time.monotonic()
        rate = self._done / max(1e-9, self._last - self._start)
        left = (self._total - self._done) / rate if rate else 0
        counts = f"{self._done}/{self._total} records, {self._skipped} skipped"
        print(f"{self._what}: {counts}, {rate:.1f}/s, {left:.0f} s left", file=sys.stderr, flush=True)
