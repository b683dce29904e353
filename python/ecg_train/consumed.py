"""A digest of the windows that a step consumed, for the proof that two runs read the same.

Every window gets a number below 2^48 from its tokens, in their order; the number of a step is the sum over its
windows modulo 2^48. So the sum over workers, micro-batches and windows is the same however they were cut and in
whatever order they came, and a window that is missing, doubled or another one shows. 48 bits stay exact in JSON
readers and in float64 columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

BITS = 48
MASK = (1 << BITS) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Consumed:
    """Numbers windows of up to the longest length that was met; the keys are made once."""

    def __init__(self) -> None:
        self._keys = np.empty(0, np.uint64)

    def __call__(self, micro_batches: Iterable[np.ndarray]) -> int:
        """Return the number, below 2^48, of one worker's micro-batches, int64 (rows, width) each."""
        total = 0
        for batch in micro_batches:
            if batch.shape[1] > len(self._keys):
                self._keys = _mix(np.arange(1, batch.shape[1] + 1, dtype=np.uint64) * np.uint64(_GOLDEN)) | np.uint64(1)
            # A linear hash with an odd key per place, then scrambled, so that equal sums of tokens do not cancel.
            sums = (batch.view(np.uint64) * self._keys[: batch.shape[1]]).sum(axis=1, dtype=np.uint64)
            total += int(_mix(sums).sum(dtype=np.uint64))
        return total & MASK


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble uint64 values with the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
