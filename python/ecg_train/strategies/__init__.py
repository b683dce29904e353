"""Strategies: each owns whatever touches tensors, behind the seam of ``base.Strategy``."""

from __future__ import annotations

import os
from importlib import import_module

from ecg_train.errors import UserError
from ecg_train.strategies.base import Strategy

# Activations come and go at every step; in 4 KiB pages each return costs thousands of page faults.
# PyTorch's CPU allocator reads it once, at the first tensor, so it stands where every strategy is imported through.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# The class is named, not imported, so that --help works where no framework is installed.
KNOWN: dict[str, tuple[str, str]] = {
    "serial": ("ecg_train.strategies.serial", "Serial"),
    "ddp": ("ecg_train.strategies.ddp", "DDP"),
    "fsdp": ("ecg_train.strategies.fsdp", "FSDP"),
    "horovod": ("ecg_train.strategies.horovod", "Horovod"),
    "deepspeed": ("ecg_train.strategies.deepspeed", "DeepSpeed"),
    "mpi": ("ecg_train.strategies.mpi", "MPI"),
}


def make(name: str) -> Strategy:
    """Return a new strategy; UserError when its framework is not installed."""
    module, attribute = KNOWN[name]
    try:
        return getattr(import_module(module), attribute)()
    except ImportError as error:
        raise UserError(f"{name} is not usable here ({error}); 'make setup' installs it") from error
