"""Exact quantiles and a trend test for a series too long for memory."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator

import numpy as np

HELD = 1 << 20  # values held in memory; a longer series goes to an unnamed temporary file
POINTS = 64  # block medians that the trend test looks at


class Series:
    """Finite float64 values, none negative, in the order they came; constant memory."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._held = 0
        self._spilled = 0
        self._file = None
        self._near: tuple[int, np.ndarray] | None = None  # rank of the first, sorted values around the last asked for

    def __len__(self) -> int:
        return self._held + self._spilled

    def add(self, values: np.ndarray) -> None:
        if not len(values):
            return
        self._near = None
        self._parts.append(values + 0.0)  # a copy, and without the minus of -0.0
        self._held += len(values)
        if self._held > HELD:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the series
            for part in self._parts:
                self._file.write(part.data)
            self._spilled += self._held
            self._parts, self._held = [], 0

    def chunks(self, size: int = HELD) -> Iterator[np.ndarray]:
        """Yield the values in order, at most `size` at once."""
        if self._file is not None:
            self._file.seek(0)
            left = self._spilled
            while left:
                data = self._file.read(8 * min(size, left))
                left -= len(data) // 8
                yield np.frombuffer(data)
            self._file.seek(0, 2)
        if self._parts:
            whole = np.concatenate(self._parts)
            for at in range(0, len(whole), size):
                yield whole[at : at + size]

    def quantiles(self, wanted: list[float]) -> list[float] | None:
        """Return quantiles by linear interpolation (numpy's default), exact at any length; None when empty."""
        n = len(self)
        if not n:
            return None
        if not self._spilled:
            return [float(q) for q in np.quantile(np.concatenate(self._parts), wanted)]
        out = []
        for q in wanted:
            place = q * (n - 1)
            low = self._order(math.floor(place))
            high = self._order(math.ceil(place))
            out.append(low + (high - low) * (place - math.floor(place)))
        return out

    def _order(self, k: int) -> float:
        """Return the k-th smallest value, k from 0, by radix selection.

        The bits of floats that are not negative rise with the value. Each pass counts the next 16 of them among
        the values that share the bits found so far, until these fit into memory; after 64 bits all are the same.
        """
        if self._near is not None and 0 <= k - self._near[0] < len(self._near[1]):
            return float(self._near[1][k - self._near[0]])
        before, inside, prefix, shift = 0, len(self), 0, 64
        while inside > HELD and shift:
            shift -= 16
            counts = np.zeros(1 << 16, dtype=np.int64)
            for bits in self._bits(prefix, shift + 16):
                counts += np.bincount((bits >> np.uint64(shift)) & np.uint64(0xFFFF), minlength=1 << 16)
            at = int(np.searchsorted(before + np.cumsum(counts), k, side="right"))
            before += int(counts[:at].sum())
            inside = int(counts[at])
            prefix = prefix << 16 | at
        if not shift:
            return float(np.uint64(prefix).view(np.float64))
        rest = np.sort(np.concatenate(list(self._bits(prefix, shift)))).view(np.float64)
        self._near = (before, rest)
        return float(rest[k - before])

    def _bits(self, prefix: int, shift: int) -> Iterator[np.ndarray]:
        """Yield the bits of the values whose bits above `shift` are `prefix`."""
        for c in self.chunks():
            bits = c.view(np.uint64)
            yield bits if shift == 64 else bits[bits >> np.uint64(shift) == np.uint64(prefix)]

    def block_medians(self, points: int = POINTS) -> np.ndarray:
        """Return the medians of `points` equal stretches of the series (fewer values: the values)."""
        n = len(self)
        size = max(1, math.ceil(n / points))
        medians, rest = [], np.empty(0)
        for c in self.chunks():
            rest = np.concatenate([rest, c])
            whole = len(rest) // size * size
            medians.extend(np.median(rest[:whole].reshape(-1, size), axis=1).tolist())
            rest = rest[whole:]
        if len(rest) > size // 2:
            medians.append(float(np.median(rest)))
        return np.array(medians)
