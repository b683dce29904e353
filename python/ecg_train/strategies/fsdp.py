"""PyTorch FSDP2 (``fully_shard``): weights, gradients and optimizer state are sharded over the workers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ecg_train.strategies.gloo_scatter import ScatterBySwap
from ecg_train.strategies.memory import keep_freed_memory
from ecg_train.strategies.process_group import ProcessGroupStrategy


class FSDP(ProcessGroupStrategy):
    """Train under fully_shard, one group of weights per block."""

    name = "fsdp"

    def wrap(self, model: nn.Module) -> nn.Module:
        # Half the traffic in bf16: what autocast would round after the gather is rounded before it.
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if self.config.precision == "bf16" else None, reduce_dtype=torch.float32
        )
        # On a CPU, exchange costs more than memory: weights that were gathered for forward are kept for backward.
        gather_again = self.backend != "gloo"
        for block in model.blocks:
            fully_shard(block, mp_policy=policy, reshard_after_forward=gather_again)
        fully_shard(model, mp_policy=policy)
        if self.backend == "gloo":
            keep_freed_memory()
            for module in (*model.blocks, model):
                module.set_custom_reduce_scatter(ScatterBySwap())
        self._silent = False
        return self.compiled(model)

    def autocast(self) -> AbstractContextManager:
        return nullcontext()  # the policy above does it

    def exchange_on(self, on: bool) -> AbstractContextManager:
        self.module.set_requires_gradient_sync(on)
        return nullcontext()

    def clip(self, parameters: Iterable[Tensor]) -> Tensor:
        return super().clip(parameters).full_tensor()

    def train_step(self, micro_batches, learning_rate, exchange=True):
        if not exchange and not self._silent:
            self._keep_gathered()
        return super().train_step(micro_batches, learning_rate, exchange)

    def _keep_gathered(self) -> None:
        """From now on gather no weights: the first step without exchange leaves them whole on every worker."""
        self._silent = True
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.set_reshard_after_forward(False, recurse=False)
                module.set_reshard_after_backward(False, recurse=False)

    def finish(self, exchange: bool) -> Tensor | None:
        if not exchange:
            # Unsharded gradients wait for an exchange that never comes; the optimizer works on shards of the
            # same size all the same, so that its time stays in the step.
            for parameter in self.model.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.optimizer.step()
            return None
        return super().finish(exchange)

    def trained(self) -> list[tuple[str, Tensor]]:
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # validation may have left them gathered
        return super().trained()

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)

    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.full_tensor().cpu() for name, tensor in self.module.state_dict().items()}
