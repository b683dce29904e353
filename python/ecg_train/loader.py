"""Batches for one worker, read ahead by a thread while the device computes.

Worker ``r`` of ``w`` takes the ``r``-th contiguous part of every global batch, and micro-batch ``a`` is the
``a``-th contiguous part of that. So neither the number of workers nor the accumulation changes the tokens of
a step.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import numpy as np

from ecg_train.errors import UserError
from ecg_train.order import MixtureOrder, WindowOrder
from ecg_train.shards import TOKEN, ShardSet

_ORDER_CHUNK = 1024  # windows whose order is computed in one call: the cost of a call is spread over many steps


def check_division(global_batch: int, world: int, accumulation: int) -> int:
    """Return the windows of one micro-batch of one worker; UserError that names the numbers where they do not
    divide."""
    for name, value in (("global batch", global_batch), ("workers", world), ("accumulation", accumulation)):
        if value < 1:
            raise UserError(f"{name} is {value}, wanted 1 or more")
    if global_batch % (world * accumulation):
        step = world * accumulation
        below, above = global_batch // step * step, (global_batch // step + 1) * step
        nearest = f"{below} or {above}" if below else str(above)
        raise UserError(
            f"global batch {global_batch} does not divide into {world} workers x {accumulation}"
            f" micro-batches; take BATCH={nearest}"
        )
    return global_batch // (world * accumulation)


class Loader:
    """Deliver the batches of one worker step by step, from ``start_step`` (from 0) on, without end.

    One thread sleeps on a queue until a buffer is free, fills it and sleeps again: it never polls, and the
    copying inside numpy lets go of the interpreter lock. The windows come as int64, which embedding and
    cross-entropy want: the thread widens them, and four times the bytes of a batch (tens of kilobytes) is
    less than a second conversion on the device. Use as a context manager, or call ``close``.
    """

    def __init__(
        self,
        shards: ShardSet,
        order: WindowOrder | MixtureOrder,
        global_batch: int,
        rank: int,
        world: int,
        accumulation: int = 1,
        start_step: int = 0,
        prefetch: int = 2,
    ) -> None:
        """Start reading ahead by ``prefetch`` batches; UserError where the batch does not divide."""
        self._rows = check_division(global_batch, world, accumulation)
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} does not lie in a world of {world}")
        if order.n_windows != shards.n_windows:
            raise ValueError(f"the order is for {order.n_windows} windows, the shards have {shards.n_windows}")
        if prefetch < 1 or start_step < 0:
            raise ValueError(f"prefetch {prefetch} must be 1 or more, start_step {start_step} 0 or more")
        self._shards, self._order = shards, order
        self._global_batch, self._accumulation = global_batch, accumulation
        self._part = self._rows * accumulation
        self._first = rank * self._part
        self._step = start_step
        self._free: queue.SimpleQueue = queue.SimpleQueue()  # buffers to fill; None wakes the thread to end
        self._ready: queue.SimpleQueue = queue.SimpleQueue()  # filled buffers, or an exception; None after close
        self._held: np.ndarray | None = None
        self._error: BaseException | None = None
        self._closed = False
        shape = (accumulation, self._rows, shards.seq_len + 1)
        for _ in range(prefetch + 1):  # one more: the batch in the caller's hands
            self._free.put(np.empty(shape, dtype=np.int64))
        self._thread = threading.Thread(target=self._read_ahead, name="ecg-prefetch", daemon=True)
        self._thread.start()

    def _windows(self) -> Iterator[np.ndarray]:
        """Yield this worker's windows of each step, int64 of shape (part,), computing the order in chunks."""
        steps = max(1, _ORDER_CHUNK // self._part)
        step = self._step
        while True:
            starts = (step + np.arange(steps, dtype=np.int64)) * self._global_batch + self._first
            yield from self._order.windows(starts[:, None] + np.arange(self._part, dtype=np.int64))
            step += steps

    def _read_ahead(self) -> None:
        try:
            tokens = np.empty((self._part, self._shards.seq_len + 1), dtype=TOKEN)
            for windows in self._windows():
                buffer = self._free.get()
                if buffer is None or self._closed:
                    return
                self._shards.gather(windows, tokens)
                buffer.reshape(tokens.shape)[...] = tokens
                self._ready.put(buffer)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller's thread must see it
            self._ready.put(error)

    def next(self) -> tuple[list[np.ndarray], float]:
        """Return the micro-batches of the next step and the seconds that the caller waited for them.

        Each of the ``accumulation`` arrays is int64 of shape (global_batch / world / accumulation, seq_len +
        1). They are views of a buffer that is filled anew after the following call of ``next``: copy what
        must live longer. Raises what the reading thread met (again at each later call), RuntimeError after
        ``close``.
        """
        if self._error is not None:
            raise self._error
        if self._closed:
            raise RuntimeError("the loader is closed")
        if self._held is not None:
            self._free.put(self._held)
            self._held = None
        start = time.perf_counter()
        item = self._ready.get()
        waited = time.perf_counter() - start
        if item is None:
            raise RuntimeError("the loader was closed while a batch was awaited")
        if isinstance(item, BaseException):
            self._error = item
            raise item
        self._held = item
        return list(item), waited

    def close(self) -> None:
        """Stop the thread; may be called twice, and while another thread waits in ``next``."""
        if self._closed:
            return
        self._closed = True
        self._free.put(None)
        self._ready.put(None)
        # a read that hangs in the file system must not hang the end of the run: the thread is a daemon
        self._thread.join(timeout=5.0)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EvalPlan:
    """The validation windows: evenly spaced over the split, not shuffled, the same for every run and every
    world.

    There are ``batches`` global batches of ``batch`` windows, ``batches = min(max_batches, n_windows //
    batch)``, at least 1; a split smaller than one batch repeats windows. Every worker gets parts of the same
    size, as many of them as there are batches, so the mean over workers of each worker's mean is the mean
    over the plan.
    """

    def __init__(self, shards: ShardSet, batch: int, max_batches: int) -> None:
        """``batch`` is the global number of windows per forward pass; UserError where a number is below 1."""
        check_division(batch, 1, 1)
        if max_batches < 1:
            raise UserError(f"the number of validation batches is {max_batches}, wanted 1 or more")
        self._shards, self.batch = shards, batch
        self.batches = max(1, min(max_batches, shards.n_windows // batch))
        count = self.batches * batch
        self.windows = np.array([i * shards.n_windows // count for i in range(count)], dtype=np.int64)
        self.tokens = count * shards.seq_len  # predicted tokens over the whole plan

    def parts(self, rank: int, world: int) -> Iterator[np.ndarray]:
        """Yield worker ``rank``'s part of each batch: int64 of shape (batch / world, seq_len + 1), a fresh
        array."""
        rows = check_division(self.batch, world, 1)
        tokens = np.empty((rows, self._shards.seq_len + 1), dtype=TOKEN)
        for number in range(self.batches):
            first = number * self.batch + rank * rows
            self._shards.gather(self.windows[first : first + rows], tokens)
            yield tokens.astype(np.int64)
