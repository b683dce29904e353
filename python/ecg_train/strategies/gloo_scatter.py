"""A reduce-scatter for gloo, which has none: PyTorch all-reduces there and throws most of the result away."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class ScatterBySwap:
    """FSDP2's ReduceScatter interface: each worker sends every other its part, and sums what it receives.

    A worker sends (w - 1) / w of the input, half of what an all-reduce moves.
    """

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> None:
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ValueError(f"reduction {op}: only sums and averages are known here")
        parts = torch.empty_like(input_tensor)
        dist.all_to_all_single(parts, input_tensor, group=group)
        torch.sum(parts.view(group.size(), -1), dim=0, out=output_tensor.view(-1))
        if op == dist.ReduceOp.AVG:
            output_tensor.div_(group.size())
