"""Root mean square normalisation without weights: the matrix that follows a norm can hold its scale."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-6


def rms_norm(x: Tensor) -> Tensor:
    """Scale each vector of the last dimension to a root mean square of one (Zhang & Sennrich 2019, eq. 4)."""
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return Fewer.apply(x)
    return F.rms_norm(x, (x.size(-1),), eps=EPSILON)


class Fewer(torch.autograd.Function):
    """The CPU path: two passes over memory forward and four back, where PyTorch's own takes about twice as many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # (..., width)
        wide = torch.promote_types(x.dtype, torch.float32)  # squares of bfloat16 need more than its 8 bits
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = norm.square_().div_(x.size(-1)).add_(EPSILON).rsqrt_().to(x.dtype)  # (..., 1)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, scale = ctx.saved_tensors
        # d/dx of x / rms(x): what is left of the gradient when its part along y is taken out, over rms(x).
        along = torch.linalg.vecdot(grad, y).unsqueeze_(-1).div_(-y.size(-1))
        return torch.addcmul(grad, y, along).mul_(scale)
