"""The part of a strategy that lives in a torch.distributed process group: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ecg_train.config import Config
from ecg_train.ranks import check_world, from_environment
from ecg_train.strategies.torch_base import TorchStrategy


class ProcessGroupStrategy(TorchStrategy):
    """Join and leave a process group, and average over it."""

    def join(self, config: Config) -> tuple[int, int, int]:
        world = from_environment()
        check_world(config.expected_world, world.size)
        device = self.pick_device(config, world.local_rank)
        self.backend = "nccl" if device.type == "cuda" else "gloo"
        self.init_group(config, world.rank, world.size, device)
        return dist.get_rank(), world.local_rank, dist.get_world_size()

    def init_group(self, config: Config, rank: int, size: int, device: torch.device) -> None:
        """Create the default process group; a world of one needs no address from outside."""
        where: dict[str, Any] = {"init_method": "env://"}
        if size == 1:
            where = {"store": dist.HashStore()}
        if device.type == "cuda":
            where["device_id"] = device  # ranks and devices are fixed, so that NCCL need not guess
        dist.init_process_group(
            self.backend, rank=rank, world_size=size, timeout=timedelta(seconds=config.timeout), **where
        )

    def mean(self, values: Sequence[float]) -> list[float]:
        if dist.get_world_size() == 1:
            return list(values)
        buffer = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(buffer)
        return (buffer / dist.get_world_size()).tolist()

    def reduce(self, flat: torch.Tensor) -> None:
        dist.all_reduce(flat)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"backend": self.backend}

    def stop(self, ok: bool) -> None:
        # After a failure the others may be inside a collective: destroying the group could wait for them.
        if ok and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
