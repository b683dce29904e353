"""Horovod: an optimizer whose gradients are averaged by a background thread, over MPI or NCCL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

# Horovod's thread shares a worker's core with backward, and Open MPI waits by spinning: without this it takes up to
# half of the core from the computation (docs/speed.md).
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")

import horovod
import horovod.torch as hvd
import torch
from torch import Tensor, nn

from ecg_train.config import Config
from ecg_train.ranks import check_world
from ecg_train.strategies.torch_base import TorchStrategy

NEVER = 1 << 30


class Horovod(TorchStrategy):
    """Train with Horovod's DistributedOptimizer."""

    name = "horovod"

    def join(self, config: Config) -> tuple[int, int, int]:
        hvd.init()
        check_world(config.expected_world, hvd.size())
        return hvd.rank(), hvd.local_rank(), hvd.size()

    def wrap(self, model: nn.Module) -> nn.Module:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return self.compiled(model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.module.named_parameters(),
            backward_passes_per_step=self.config.accumulation,
            op=hvd.Average,
        )

    def train_step(self, micro_batches, learning_rate, exchange=True):
        # Horovod starts an exchange when a gradient has seen this many backward passes.
        self.optimizer.set_backward_passes_per_step(self.config.accumulation if exchange else NEVER)
        return super().train_step(micro_batches, learning_rate, exchange)

    def finish(self, exchange: bool) -> Tensor | None:
        if exchange and hvd.size() > 1:
            self.optimizer.synchronize()
        else:
            self.optimizer._handles.clear()  # the gradients stay local: nothing is under way
        norm = self.clip(self.model.parameters())
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def mean(self, values: Sequence[float]) -> list[float]:
        if hvd.size() == 1:
            return list(values)
        return hvd.allreduce(torch.tensor(values, dtype=torch.float64), name="mean", op=hvd.Average).tolist()

    def reduce(self, flat: Tensor) -> None:
        hvd.allreduce_(flat, name="preflight", op=hvd.Sum)

    def facts(self) -> dict[str, Any]:
        backend = "nccl" if hvd.nccl_built() and self.device.type == "cuda" else "mpi" if hvd.mpi_enabled() else "gloo"
        return super().facts() | {"framework_version": horovod.__version__, "backend": backend}

    def stop(self, ok: bool) -> None:
        if ok:
            hvd.shutdown()
