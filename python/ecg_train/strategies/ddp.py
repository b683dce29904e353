"""PyTorch DistributedDataParallel: whole model on every worker, gradients averaged in buckets during backward."""

from __future__ import annotations

import contextlib
import warnings
from contextlib import AbstractContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ecg_train.strategies.process_group import ProcessGroupStrategy


class DDP(ProcessGroupStrategy):
    """Train under DistributedDataParallel."""

    name = "ddp"

    def wrap(self, model: nn.Module) -> nn.Module:
        options = {"bucket_cap_mb": self.config.bucket_mb} if self.config.bucket_mb else {}
        # Its successor does not exist in this release yet, and without it the tables go over the wire each step.
        warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
        wrapped = DistributedDataParallel(
            model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            broadcast_buffers=False,  # the rotary tables are the same everywhere
            gradient_as_bucket_view=True,  # saves one copy of all gradients in and one out
            **options,
        )
        return self.compiled(wrapped)

    def exchange_on(self, on: bool) -> AbstractContextManager:
        wrapped = getattr(self.model, "_orig_mod", self.model)
        return contextlib.nullcontext() if on else wrapped.no_sync()
