"""The loader: the same tokens for every world, accumulation and restart; errors and ends that do not hang."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from ecg_train.errors import UserError
from ecg_train.loader import EvalPlan, Loader
from ecg_train.order import WindowOrder
from ecg_train.shards import ShardSet

BATCH, SEQ = 12, 16


@pytest.fixture
def shards(make_set) -> ShardSet:
    """101 windows in two shards: no batch divides that. The first token of window i is 16 i."""
    folder, _ = make_set(60 * SEQ, 42 * SEQ + 1, vocab=4096)
    opened = ShardSet.open(folder, "train", SEQ)
    assert opened.n_windows == 101
    return opened


def steps(shards, count, world=1, rank=0, accumulation=1, start=0, seed=1, prefetch=2) -> np.ndarray:
    """Return the batches of one worker: shape (count, rows, seq_len + 1), micro-batches joined in order."""
    order = WindowOrder(shards.n_windows, seed)
    with Loader(shards, order, BATCH, rank, world, accumulation, start, prefetch) as loader:
        return np.stack([np.concatenate(loader.next()[0]) for _ in range(count)])


def first_tokens(shards, indices):
    out = np.empty((len(indices), SEQ + 1), np.uint16)
    shards.gather(indices, out)
    return out


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_worlds_see_the_same_windows_each_once_per_epoch(shards, world):
    """Seven epochs long; the global batch, workers' parts joined in rank order, is that of one worker, row by
    row."""
    count = 7 * shards.n_windows // BATCH
    joined = np.concatenate([steps(shards, count, world, rank) for rank in range(world)], axis=1)
    assert np.array_equal(joined, steps(shards, count))
    rows = joined.reshape(-1, SEQ + 1)
    whole = first_tokens(shards, np.arange(shards.n_windows))
    by_row = {row.tobytes(): i for i, row in enumerate(whole.astype(np.int64))}
    assert len(by_row) == shards.n_windows
    seen = np.array([by_row[row.tobytes()] for row in rows])
    for epoch in range(len(seen) // shards.n_windows):
        part = seen[epoch * shards.n_windows : (epoch + 1) * shards.n_windows]
        assert np.array_equal(np.sort(part), np.arange(shards.n_windows))


@pytest.mark.parametrize(("world", "accumulation"), [(1, 2), (1, 12), (2, 3), (3, 4)])
def test_accumulation_cuts_the_same_tokens(shards, world, accumulation):
    for rank in range(world):
        assert np.array_equal(steps(shards, 9, world, rank, accumulation), steps(shards, 9, world, rank))


def test_restart_at_a_step_goes_on_as_if_nothing_had_been(shards):
    through = steps(shards, 40)
    for start in (1, 7, 8, 9, 39):  # 8 holds the end of the first epoch
        assert np.array_equal(steps(shards, 40 - start, start=start), through[start:])


def test_prefetch_depth_does_not_change_the_tokens(shards):
    assert np.array_equal(steps(shards, 30, prefetch=1), steps(shards, 30, prefetch=7))


def test_other_seeds_see_other_batches(shards):
    assert not np.array_equal(steps(shards, 1, seed=1), steps(shards, 1, seed=2))


def test_shapes_and_types(shards):
    with Loader(shards, WindowOrder(101, 1), BATCH, 1, 2, accumulation=3) as loader:
        micro_batches, waited = loader.next()
    assert [m.shape for m in micro_batches] == [(2, SEQ + 1)] * 3
    assert all(m.dtype == np.int64 and m.flags.c_contiguous for m in micro_batches)
    assert 0 <= waited < 60


def test_a_batch_stays_untouched_until_the_next_call(shards):
    """The reading thread has long filled all other buffers when the copy is compared."""
    with Loader(shards, WindowOrder(101, 1), BATCH, 0, 1, prefetch=3) as loader:
        for _ in range(10):
            (batch,), _ = loader.next()
            copy = batch.copy()
            time.sleep(0.005)
            assert np.array_equal(batch, copy)


@pytest.mark.parametrize(
    ("batch", "world", "accumulation", "message"),
    [
        (16, 3, 1, "global batch 16 does not divide into 3 workers x 1 micro-batches; take BATCH=15 or 18"),
        (2, 2, 2, "global batch 2 does not divide into 2 workers x 2 micro-batches; take BATCH=4"),
        (0, 1, 1, "global batch is 0"),
        (4, 1, 0, "accumulation is 0"),
        (4, 0, 1, "workers is 0"),
    ],
)
def test_batches_that_do_not_divide_name_the_numbers(shards, batch, world, accumulation, message):
    with pytest.raises(UserError) as caught:
        Loader(shards, WindowOrder(101, 1), batch, 0, world, accumulation)
    assert message in str(caught.value)


def test_arguments_of_ours_are_checked(shards):
    order = WindowOrder(101, 1)
    for bad in (
        {"rank": 2, "world": 2},
        {"rank": 0, "world": 1, "prefetch": 0},
        {"rank": 0, "world": 1, "start_step": -1},
    ):
        with pytest.raises(ValueError, match=r"world of 2|prefetch"):
            Loader(shards, order, BATCH, **bad)
    with pytest.raises(ValueError, match="order is for 100 windows"):
        Loader(shards, WindowOrder(100, 1), BATCH, 0, 1)


class Broken:
    """Shards whose third read fails or hangs."""

    n_windows, seq_len = 101, SEQ

    def __init__(self, act):
        self.act, self.calls = act, 0

    def gather(self, indices, out):
        self.calls += 1
        if self.calls == 3:
            self.act()
        out[...] = 0


def test_error_while_reading_ahead_surfaces_in_next_and_stays():
    def fail():
        raise OSError(5, "Input/output error")

    with Loader(Broken(fail), WindowOrder(101, 1), BATCH, 0, 1) as loader:
        loader.next()
        loader.next()  # what was read before the error is still delivered
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                loader.next()
    assert not loader._thread.is_alive()


def test_wait_is_measured():
    with Loader(Broken(lambda: time.sleep(0.2)), WindowOrder(101, 1), BATCH, 0, 1) as loader:
        waits = [loader.next()[1] for _ in range(3)]
    assert max(waits) == waits[2]
    assert 0.1 < waits[2] < 5


def test_close_is_idempotent_and_ends_the_thread(shards):
    before = threading.active_count()
    loader = Loader(shards, WindowOrder(101, 1), BATCH, 0, 1)
    loader.next()
    assert threading.active_count() == before + 1
    loader.close()
    loader.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="closed"):
        loader.next()


def test_close_wakes_a_caller_that_waits():
    """The read hangs until the test ends: next() waits for it, close() comes from another thread."""
    release = threading.Event()
    loader = Loader(Broken(release.wait), WindowOrder(101, 1), BATCH, 0, 1)
    loader.next()
    loader.next()
    seen = []

    def wait():
        try:
            loader.next()
        except RuntimeError as error:
            seen.append(str(error))

    caller = threading.Thread(target=wait)
    caller.start()
    time.sleep(0.05)
    closer = threading.Thread(target=loader.close)
    closer.start()
    caller.join(3)
    assert not caller.is_alive()
    assert "closed while a batch was awaited" in seen[0]
    release.set()
    closer.join(10)
    assert not closer.is_alive()


def test_reading_ahead_does_not_spin(shards):
    """A loader whose buffers are full costs no CPU."""
    with Loader(shards, WindowOrder(101, 1), BATCH, 0, 1) as loader:
        loader.next()
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.03


@pytest.mark.parametrize("max_batches", [1, 3, 8, 100])
def test_evaluation_sees_the_same_windows_in_every_world(shards, max_batches):
    plan = EvalPlan(shards, BATCH, max_batches)
    assert plan.batches == min(max_batches, 101 // BATCH)
    assert plan.tokens == plan.batches * BATCH * SEQ
    alone = list(plan.parts(0, 1))
    assert len(alone) == plan.batches
    for world in (2, 3, 4):
        joined = [np.concatenate(parts) for parts in zip(*(plan.parts(r, world) for r in range(world)), strict=True)]
        assert all(np.array_equal(a, b) for a, b in zip(joined, alone, strict=True))
        loss = [np.mean([part.mean() for part in plan.parts(rank, world)]) for rank in range(world)]
        assert np.mean(loss) == pytest.approx(np.mean([part.mean() for part in alone]), rel=1e-12)


def test_evaluation_windows_are_spread_evenly(shards):
    plan = EvalPlan(shards, BATCH, 4)
    assert plan.windows[0] == 0
    assert set(np.diff(plan.windows)) == {2, 3}  # 101 windows, 48 of them
    assert np.array_equal(plan.windows, EvalPlan(shards, BATCH, 4).windows)


def test_evaluation_of_a_split_smaller_than_a_batch_repeats_windows(shards):
    plan = EvalPlan(shards, 204, 5)
    assert plan.batches == 1
    assert np.array_equal(np.unique(plan.windows), np.arange(101))
    with pytest.raises(UserError, match="validation batches is 0"):
        EvalPlan(shards, BATCH, 0)
