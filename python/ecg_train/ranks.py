"""Ranks as the launcher's wrapper (bin/with-ranks) hands them over, and the first check of every worker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ecg_train.errors import UserError
from ecg_train.strategies.base import World


def from_environment(environ: Mapping[str, str] | None = None) -> World:
    """Return the ranks in RANK, LOCAL_RANK and WORLD_SIZE; with none of them set, a world of one.

    Raises UserError when only some are set or one is no number in its range.
    """
    environ = os.environ if environ is None else environ
    texts = {name: environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    if not any(texts.values()):
        return World(0, 0, 1, "")
    try:
        rank, local_rank, size = (int(text) for text in texts.values())
    except ValueError:
        raise UserError(f"ranks are not whole numbers: {_shown(texts)}; start workers with bin/with-ranks") from None
    if not (0 <= rank < size and 0 <= local_rank < size):
        raise UserError(f"ranks outside the world: {_shown(texts)}; start workers with bin/with-ranks")
    return World(rank, local_rank, size, "")


def check_world(expected: int, seen: int) -> None:
    """Raise UserError unless the world has the size that was asked for (0: anything)."""
    if expected and expected != seen:
        raise UserError(
            f"world size is {seen}, wanted {expected}: the launcher and the framework do not see each other "
            "(under Slurm try 'srun --mpi=list'; with mpirun, the MPI of the launcher and of mpi4py must be one)"
        )


def _shown(texts: Mapping[str, str]) -> str:
    return " ".join(f"{name}={text!r}" for name, text in texts.items())
