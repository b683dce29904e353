"""Bare MPI: mpi4py, gradients averaged bucket by bucket through non-blocking all-reduces during backward."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")  # a waiting worker leaves the core to the prefetch thread

import mpi4py
import numpy as np
from mpi4py import MPI as mpi  # noqa: N811 - the module that mpi4py's own documentation calls MPI
from torch import Tensor, nn

from ecg_train.config import Config
from ecg_train.ranks import check_world
from ecg_train.strategies.buckets import Buckets
from ecg_train.strategies.torch_base import TorchStrategy


class MPI(TorchStrategy):
    """Train with mpi4py alone."""

    name = "mpi"

    def join(self, config: Config) -> tuple[int, int, int]:
        self.comm = mpi.COMM_WORLD
        check_world(config.expected_world, self.comm.size)
        node = self.comm.Split_type(mpi.COMM_TYPE_SHARED)
        local_rank = node.rank
        node.Free()
        return self.comm.rank, local_rank, self.comm.size

    def wrap(self, model: nn.Module) -> nn.Module:
        for parameter in model.parameters():
            host = parameter.detach().cpu().contiguous()
            self.comm.Bcast(host.numpy(), root=0)
            parameter.data.copy_(host)
        self.buckets = Buckets(
            [p for p in model.parameters() if p.requires_grad], self.comm, self.config.bucket_mb or None
        )
        return self.compiled(model)

    def train_step(self, micro_batches, learning_rate, exchange=True):
        self.buckets.begin(len(micro_batches) if exchange and self.comm.size > 1 else 0)
        return super().train_step(micro_batches, learning_rate, exchange)

    def finish(self, exchange: bool) -> Tensor | None:
        self.buckets.wait()
        norm = self.clip(self.model.parameters())
        self.optimizer.step()
        self.buckets.clear()
        return norm

    def mean(self, values: Sequence[float]) -> list[float]:
        buffer = np.array(values, dtype=np.float64)
        self.comm.Allreduce(mpi.IN_PLACE, buffer)
        return (buffer / self.comm.size).tolist()

    def reduce(self, flat: Tensor) -> None:
        host = flat.cpu()
        self.comm.Allreduce(mpi.IN_PLACE, host.numpy())
        flat.copy_(host)

    def facts(self) -> dict[str, Any]:
        library = mpi.Get_library_version().split(",")[0].strip("\0 \n")
        return super().facts() | {"framework_version": mpi4py.__version__, "backend": library}

    def stop(self, ok: bool) -> None:
        if not ok:
            self.comm.Abort(1)  # a rank that just leaves would let the others wait for ever
