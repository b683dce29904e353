"""The null strategy: one process, no exchange. Smoke test and baseline."""

from __future__ import annotations

from ecg_train.config import Config
from ecg_train.errors import UserError
from ecg_train.ranks import from_environment
from ecg_train.strategies.torch_base import TorchStrategy


class Serial(TorchStrategy):
    """Train in one process."""

    name = "serial"

    def join(self, config: Config) -> tuple[int, int, int]:
        size = from_environment().size
        if size != 1:
            raise UserError(f"serial runs in one process, but the launcher started {size}; take FW=ddp, or GPUS=1")
        return 0, 0, 1
