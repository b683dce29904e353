"""The order in which training windows are read: a keyed permutation computed on the fly.

No shuffled list exists anywhere, so the order of 10^12 windows costs as much memory as that of ten.

Positions run through all epochs: global position ``p`` lies in epoch ``p // n`` at place ``p % n``, and step
``s`` (from 0) of a run with global batch ``B`` uses the positions ``[s * B, (s + 1) * B)``. Where ``B`` does
not divide ``n`` one batch holds the end of an epoch and the beginning of the next. That choice keeps both
promises at once: every window is read exactly once per epoch, and the global batch of a step depends on
(seed, step) alone, never on the number of workers, the accumulation or a restart.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

LIMIT = 1 << 62
"""Most windows that an order can hold, and the end of the global positions that one call can take."""

ROUNDS = 8
"""Feistel rounds. Four make a permutation look random to a statistician when both halves are large; eight
help where ``n`` is a handful."""

_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble uint64 values with the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _MULTIPLY_1  # numpy wraps modulo 2^64, which is what is meant
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLY_2
    return x ^ (x >> np.uint64(31))


def _add(x: np.ndarray, scrambled: np.ndarray, size: np.uint64) -> np.ndarray:
    """Add to x below ``size`` (at most 2^31) a number below ``size`` that is drawn from 64 random bits,
    modulo ``size``.

    No division: the upper 32 bits times ``size``, shifted down by 32 (Lemire, ACM TOMACS 29, 2019), are the
    number; and of the sum s and s - size, which wraps to something huge where it is negative, the smaller is
    the remainder.
    """
    s = x + (((scrambled >> np.uint64(32)) * size) >> np.uint64(32))
    return np.minimum(s, s - size)


class WindowOrder:
    """Permute ``range(n_windows)`` anew in every epoch, from a seed, without storing the permutation.

    A place ``x`` is written as ``(x // b, x % b)`` in a grid of ``a`` rows and ``b`` columns, ``a =
    ceil(sqrt(n))`` and ``b = ceil(n / a)``. The rounds of a balanced Feistel network add in turn a keyed hash
    of the one coordinate to the other, modulo its range, and each is undone by subtracting: so the network is
    a bijection of the grid. The grid has fewer than ``sqrt(n) + 1`` cells beyond ``n``; a place sent there
    walks on (cycle walking: apply the network again until it comes back below ``n``), which keeps the
    bijection and touches hardly any place.

    Keys: the SHA-512 of the text ``ecg-train window order 1/<seed>/<epoch>`` read as eight little-endian
    64-bit words, one per round.
    """

    def __init__(self, n_windows: int, seed: int) -> None:
        """Raise ValueError unless ``1 <= n_windows <= 2^62``; any integer is a seed."""
        if not 1 <= n_windows <= LIMIT:
            raise ValueError(f"an order needs 1 to 2^62 windows, got {n_windows}")
        self.n_windows = int(n_windows)
        self.seed = int(seed)
        root = math.isqrt(self.n_windows - 1) + 1  # ceil(sqrt(n)), exact for big integers
        self._rows = np.uint64(root)
        self._columns = np.uint64(-(-self.n_windows // root))

    def _keys(self, epoch: int) -> np.ndarray:
        text = f"ecg-train window order 1/{self.seed}/{epoch}"
        return np.frombuffer(hashlib.sha512(text.encode()).digest(), dtype="<u8")

    def _network(self, x: np.ndarray, keys: np.ndarray) -> np.ndarray:
        row, column = x // self._columns, x % self._columns
        for number in range(0, ROUNDS, 2):
            row = _add(row, _mix(column ^ keys[number]), self._rows)
            column = _add(column, _mix(row ^ keys[number + 1]), self._columns)
        return row * self._columns + column

    def _permute(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Send places of one epoch, uint64 below ``n_windows``, to window indices, int64."""
        keys = self._keys(epoch)
        n = np.uint64(self.n_windows)
        windows = self._network(places, keys)
        outside = np.flatnonzero(windows >= n)
        while outside.size:
            windows[outside] = self._network(windows[outside], keys)
            outside = outside[windows[outside] >= n]
        return windows.astype(np.int64)

    def positions(self, epoch: int, start: int, count: int) -> np.ndarray:
        """Return the windows at places ``[start, start + count)`` of one epoch: int64, shape (count,).

        Raises ValueError where the range leaves the epoch.
        """
        if epoch < 0 or start < 0 or count < 0 or start + count > self.n_windows:
            raise ValueError(f"epoch {epoch}, places {start} to {start + count}: an epoch has {self.n_windows}")
        # start may exceed what numpy's arange represents exactly as a float: add in integers
        return self._permute(epoch, np.arange(count, dtype=np.uint64) + np.uint64(start))

    def windows(self, positions: np.ndarray) -> np.ndarray:
        """Return the windows at global positions (int64, any shape, from 0 over all epochs): int64, same
        shape."""
        positions = np.asarray(positions, dtype=np.int64)
        flat = positions.reshape(-1)
        if flat.size and int(flat.min()) < 0:
            raise ValueError(f"global positions start at 0, got {int(flat.min())}")
        epochs, places = np.divmod(flat, np.int64(self.n_windows))
        result = np.empty(flat.shape, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            result[here] = self._permute(int(epoch), places[here].astype(np.uint64))
        return result.reshape(positions.shape)

    def batch(self, step: int, global_batch: int) -> np.ndarray:
        """Return the windows of the global batch of a step (from 0): int64, shape (global_batch,)."""
        return self.windows(np.arange(global_batch, dtype=np.int64) + np.int64(step * global_batch))


class MixtureOrder:
    """Draw from several sets by whole-number weights: of any ``sum(weights)`` positions in a row that begin at a
    multiple of it, ``weights[i]`` are windows of member ``i``.

    The positions of such a block are permuted with a key of their own, and the place that a position is sent to says
    whose it is and the how manieth of that member's in this block. So a member is read in its own order, epoch after
    epoch, each window as often as any other of it, and position ``p`` depends on seed and ``p`` alone. Windows are
    numbered through the members: member 0 has ``[0, counts[0])``, member 1 those that follow.
    """

    def __init__(self, counts: Sequence[int], weights: Sequence[int], seed: int) -> None:
        """Raise ValueError unless there is a weight of at least 1 for each count."""
        if len(counts) != len(weights) or not counts or min(weights) < 1:
            raise ValueError(f"a mixture needs a weight of 1 or more for each member, got {counts} and {weights}")
        self.n_windows, self.seed = sum(counts), int(seed)
        self._weights = np.array(weights, dtype=np.int64)
        self._ends = np.cumsum(self._weights)
        self._first = np.cumsum([0, *counts])
        self._block = WindowOrder(int(self._ends[-1]), seed)
        # Seeds of their own: members of one size must not be read in the same order.
        self._members = [WindowOrder(count, (int(seed) << 16) + i + 1) for i, count in enumerate(counts)]

    def windows(self, positions: np.ndarray) -> np.ndarray:
        """Return the windows at global positions (int64, any shape, from 0): int64, same shape."""
        positions = np.asarray(positions, dtype=np.int64)
        flat = positions.reshape(-1)
        places = self._block.windows(flat)
        member = np.searchsorted(self._ends, places, side="right")
        weight = self._weights[member]
        nth = flat // self._ends[-1] * weight + places - (self._ends[member] - weight)
        result = np.empty(flat.shape, dtype=np.int64)
        for number in np.unique(member):
            here = member == number
            result[here] = self._members[number].windows(nth[here]) + self._first[number]
        return result.reshape(positions.shape)
