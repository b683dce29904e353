"""The order of windows: a permutation of every epoch that costs no memory and depends on seed and epoch
alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecg_train.order import LIMIT, MixtureOrder, WindowOrder


@settings(max_examples=150, deadline=None)
@given(n=st.integers(1, 3000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 10**9))
def test_every_epoch_is_a_permutation(n, seed, epoch):
    windows = WindowOrder(n, seed).positions(epoch, 0, n)
    assert windows.dtype == np.int64
    assert np.array_equal(np.sort(windows), np.arange(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 15, 16, 17, 99, 100, 101, 65536, 65537, 300_000])
def test_permutation_at_the_edges_of_the_grid(n):
    """Squares and their neighbours are where the grid has the fewest and the most cells to walk past."""
    assert np.array_equal(np.sort(WindowOrder(n, 0).positions(3, 0, n)), np.arange(n))


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, LIMIT), where=st.floats(0, 1), epoch=st.integers(0, 5))
def test_large_orders_stay_in_range_and_never_repeat(n, where, epoch):
    count = min(n, 500)
    start = min(int(where * n), n - count)
    windows = WindowOrder(n, 7).positions(epoch, start, count)
    assert windows.min() >= 0
    assert windows.max() < n
    assert np.unique(windows).size == count


def test_largest_order_is_a_bijection_by_its_inverse():
    """At n = 2^62 no test can count, so undo the rounds with Python's exact integers."""
    order = WindowOrder(LIMIT, 11)
    rows, columns = int(order._rows), int(order._columns)
    assert rows * columns == LIMIT  # no cell to walk past: the network alone is the order
    keys = [int(key) for key in order._keys(2)]

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    for start in (0, 12345, LIMIT // 3, LIMIT - 4):
        for place, window in enumerate(order.positions(2, start, 4).tolist(), start):
            row, column = divmod(window, columns)
            for number in range(len(keys) - 2, -1, -2):
                column = (column - ((mix(row ^ keys[number + 1]) >> 32) * columns >> 32)) % columns
                row = (row - ((mix(column ^ keys[number]) >> 32) * rows >> 32)) % rows
            assert row * columns + column == place


def test_memory_is_the_same_for_a_trillion_windows():
    def peak(n: int) -> int:
        tracemalloc.start()
        order = WindowOrder(n, 1)
        order.positions(0, n // 2, 1000)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(10_000)  # first use fills caches of Python's own
    small, large = peak(10_000), peak(10**12)
    assert large < 1_000_000
    assert large < 1.5 * small


def test_seeds_and_epochs_give_other_orders():
    base = WindowOrder(10_000, 1).positions(0, 0, 10_000)
    for other in (WindowOrder(10_000, 2).positions(0, 0, 10_000), WindowOrder(10_000, 1).positions(1, 0, 10_000)):
        assert 0 <= np.count_nonzero(base == other) < 10  # a random pair agrees in one place on average


def test_the_order_is_random_enough():
    """Chi-square of where a place is sent over 2000 epochs, and of the gap between neighbours: no value is
    preferred."""
    n, epochs = 10, 2000
    seen = np.array([WindowOrder(n, 5).positions(epoch, 0, n) for epoch in range(epochs)])
    for values in (seen[:, 0], seen[:, -1], (seen[:, 1] - seen[:, 0]) % n - 1):
        kinds = int(values.max()) + 1
        expected = epochs / kinds
        chi2 = ((np.bincount(values, minlength=kinds) - expected) ** 2 / expected).sum()
        assert chi2 < 35  # the 99.99 % point for 9 degrees of freedom is 33.7


def test_all_orders_of_three_windows_come_up_equally_often():
    seen = [tuple(WindowOrder(3, seed).positions(0, 0, 3).tolist()) for seed in range(1200)]
    counts = np.unique(seen, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 200) ** 2 / 200).sum() < 26  # 99.99 % point for 5 degrees of freedom


def test_the_order_never_changes():
    """Pinned: another order would make a resumed run see other tokens. Changing it needs a new text for the
    keys."""
    assert WindowOrder(1000, 1).positions(0, 0, 6).tolist() == PINNED_SMALL
    assert WindowOrder(10**12, 2).positions(3, 10**11, 2).tolist() == PINNED_LARGE


PINNED_SMALL = [606, 669, 918, 632, 511, 31]
PINNED_LARGE = [324575427422, 855623933371]


def test_global_positions_run_through_the_epochs():
    order = WindowOrder(7, 3)
    through = order.windows(np.arange(21))
    assert through.tolist() == np.concatenate([order.positions(e, 0, 7) for e in range(3)]).tolist()
    assert order.batch(1, 5).tolist() == through[5:10].tolist()  # straddles the first end
    assert order.windows(np.array([[20], [0]])).tolist() == [[through[20]], [through[0]]]


@pytest.mark.parametrize(
    ("n", "epoch", "start", "count"), [(10, 0, 5, 6), (10, -1, 0, 1), (10, 0, -1, 2), (10, 0, 0, -1)]
)
def test_places_outside_an_epoch_are_refused(n, epoch, start, count):
    with pytest.raises(ValueError, match=f"an epoch has {n}"):
        WindowOrder(n, 0).positions(epoch, start, count)


@pytest.mark.parametrize("n", [0, -1, LIMIT + 1])
def test_impossible_sizes_are_refused(n):
    with pytest.raises(ValueError, match="1 to 2\\^62"):
        WindowOrder(n, 0)


@settings(max_examples=100, deadline=None)
@given(
    members=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9)), min_size=1, max_size=5),
    seed=st.integers(-(2**40), 2**40),
    block=st.integers(0, 10**6),
)
def test_every_block_of_a_mixture_holds_each_member_by_its_weight(members, seed, block):
    """Of sum(weights) positions from a multiple of it on, exactly weights[i] are windows of member i."""
    counts, weights = zip(*members, strict=True)
    total = sum(weights)
    windows = MixtureOrder(counts, weights, seed).windows(np.arange(block * total, (block + 1) * total))
    owner = np.searchsorted(np.cumsum(counts), windows, side="right")
    assert np.bincount(owner, minlength=len(counts)).tolist() == list(weights)


@pytest.mark.parametrize(("counts", "weights"), [((30, 7), (1, 3)), ((5, 5, 11), (2, 2, 1)), ((100,), (4,))])
def test_a_mixture_reads_each_member_epoch_after_epoch(counts, weights):
    """However small its share, a member's windows come in epochs: none comes again before all have come."""
    total = sum(weights)
    windows = MixtureOrder(counts, weights, 3).windows(np.arange(400 * total))
    first = 0
    for count, weight in zip(counts, weights, strict=True):
        mine = windows[(windows >= first) & (windows < first + count)] - first
        assert mine.size == 400 * weight
        for epoch in range(mine.size // count):
            # Within a block the member's places are permuted, so the edge of an epoch is blurred by one block.
            inside = mine[epoch * count + weight : (epoch + 1) * count - weight]
            assert np.unique(inside).size == inside.size
        shares = np.bincount(mine[: mine.size // count * count], minlength=count)
        assert shares.max() - shares.min() <= 2
        first += count


def test_a_mixture_depends_on_the_position_alone():
    """Any part, asked for alone, is that part of the whole; another seed gives another order."""
    order = MixtureOrder((50, 20, 9), (5, 2, 2), 11)
    whole = order.windows(np.arange(900))
    assert np.array_equal(order.windows(np.arange(900).reshape(9, 100)[::-1]), whole.reshape(9, 100)[::-1])
    assert not np.array_equal(MixtureOrder((50, 20, 9), (5, 2, 2), 12).windows(np.arange(900)), whole)


@pytest.mark.parametrize(("counts", "weights"), [((), ()), ((3, 4), (1,)), ((3, 4), (1, 0))])
def test_a_mixture_without_a_weight_for_each_member_is_refused(counts, weights):
    with pytest.raises(ValueError, match="weight"):
        MixtureOrder(counts, weights, 0)
