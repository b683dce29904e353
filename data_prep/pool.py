"""Run tasks on all cores and survive a worker that dies (a crash in a decoder, the kernel's out-of-memory killer)."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from data_prep import work


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def executor(jobs: int, folder: Path) -> ProcessPoolExecutor:
    # fork: workers inherit the imported packages; a spawned worker would import for as long as it reads 20 records.
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(jobs, context, initializer=work.start, initargs=(folder, os.getpid()))


def run(function: Callable, tasks: list[tuple], jobs: int, folder: Path) -> Iterator[tuple[int, object]]:
    """Yield (number, result) of function(*task) as tasks finish; None for a task that killed its worker twice.

    What a task raises is raised here, after the other workers have been killed: what they write stands a kill.
    """
    waiting = list(range(len(tasks)))[::-1]
    suspects: list[int] = []
    while waiting:
        pool = executor(min(jobs, len(waiting)), folder)
        flying: dict = {}
        whole = False
        try:
            while waiting or flying:
                while waiting and len(flying) < 2 * jobs + 2:
                    number = waiting.pop()
                    flying[pool.submit(function, *tasks[number])] = number
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield flying.pop(future), result
            whole = True
        except BrokenProcessPool:
            suspects += flying.values()
        finally:
            if not whole:
                _kill(pool)
            pool.shutdown(wait=whole, cancel_futures=True)
        for number in suspects:
            yield number, _alone(function, tasks[number], folder)
        suspects = []


def _kill(pool: ProcessPoolExecutor) -> None:
    """End the workers at once. A shutdown that waits for them can wait for ever after an interrupt."""
    processes = list((pool._processes or {}).values())
    for process in processes:
        process.kill()
    for process in processes:
        process.join(5)


def _alone(function: Callable, task: tuple, folder: Path) -> object:
    with executor(1, folder) as pool:
        try:
            return pool.submit(function, *task).result()
        except BrokenProcessPool:
            return None
