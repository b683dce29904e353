"""The digest of consumed windows: blind to how a batch is cut, not to what is in it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_train.consumed import BITS, MASK, Consumed


def batch(seed: int, rows: int = 12, width: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1024, (rows, width))


@settings(deadline=None)
@given(st.integers(0, 1000), st.permutations(range(12)), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_cutting_and_order_do_not_matter(seed, order, parts) -> None:
    """Workers, micro-batches and the order within a batch leave the sum as it is."""
    whole = batch(seed)
    pieces = np.split(whole[list(order)], parts)
    assert sum(Consumed()([piece]) for piece in pieces) & MASK == Consumed()(pieces) == Consumed()([whole])


def test_what_was_read_does_matter() -> None:
    """Another token, two tokens swapped, a window missing or read twice: each gives another number."""
    whole = batch(1)
    seen = {Consumed()([whole])}
    changed, swapped, doubled = whole.copy(), whole.copy(), whole.copy()
    changed[3, 4] += 1
    swapped[5, [0, 1]] = whole[5, [1, 0]]
    doubled[7] = whole[6]
    for other in (changed, swapped, doubled, whole[1:], batch(2)):
        seen.add(Consumed()([other]))
    assert len(seen) == 6
    assert max(seen) < 1 << BITS


def test_it_is_the_same_in_every_process() -> None:
    """A known answer, so that a new version of anything cannot change what old logs mean."""
    assert Consumed()([np.arange(20).reshape(2, 10)]) == KNOWN


KNOWN = 202178937401130
