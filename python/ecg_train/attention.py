"""Causal attention with rotary positions, from the product of query, key and value.

On GPUs, under torch.compile and for long sequences it is ``scaled_dot_product_attention``. On CPUs that kernel pays
for the upper triangle too and rotating costs further passes over memory; for sequences up to ``CPU_LIMIT`` one
function with a backward of its own does it all in blocks of queries that see only the keys before their end.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CPU_LIMIT = 1024
"""Longest sequence for the blocked CPU path: it keeps the attention weights, which grow with the square of it."""

BLOCK = 64
"""Queries of a block: small enough to skip most of the upper triangle, large enough for efficient products."""


def rotary_tables(seq_len: int, head_dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the rotary angles, each (seq_len, head_dim / 2) in fp32 (Su et al. 2021, eq. 34)."""
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the two halves of each head (..., time, head_dim) against each other by the angle of its position."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attention(qkv: Tensor, heads: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the attended values (batch, time, width) of ``qkv`` (batch, time, 3 * width).

    ``cos`` and ``sin`` are (time, head_dim / 2) in the type of ``qkv``.
    """
    batch, time, width = qkv.size(0), qkv.size(1), qkv.size(2) // 3
    parts = qkv.view(batch, time, 3, heads, width // heads)
    if qkv.device.type == "cpu" and time <= CPU_LIMIT and not torch.compiler.is_compiling():
        return Blocked.apply(parts, cos, sin)
    q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))  # (batch, heads, time, head_dim)
    y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
    return y.transpose(1, 2).reshape(batch, time, width)


def _turn(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> None:
    """Write ``x`` turned forwards (sign 1) or back (-1) into ``out``: four half passes, nothing allocated."""
    half = x.size(-1) // 2
    a, b, out_a, out_b = x[..., :half], x[..., half:], out[..., :half], out[..., half:]
    torch.mul(a, cos, out=out_a).addcmul_(b, sin, value=-sign)
    torch.mul(b, cos, out=out_b).addcmul_(a, sin, value=sign)


class Blocked(torch.autograd.Function):
    """The CPU path. Blocks of queries against all keys up to the block's end; backward from the kept weights."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (batch, time, 3, heads, head_dim)
        batch, time, _, heads, dim = parts.shape
        by_head = parts.permute(2, 0, 3, 1, 4)  # (3, batch, heads, time, head_dim)
        packed = torch.empty(by_head.shape, dtype=parts.dtype)
        _turn(packed[:2], by_head[:2], cos, sin, 1)
        packed[2].copy_(by_head[2])
        q, k, v = packed.view(3, batch * heads, time, dim).unbind(0)
        y = torch.empty_like(q)
        upper = torch.full((BLOCK, BLOCK), -math.inf, dtype=parts.dtype).triu_(1)
        weights = []
        for begin in range(0, time, BLOCK):
            end = min(begin + BLOCK, time)
            scores = torch.bmm(q[:, begin:end] * dim**-0.5, k[:, :end].transpose(1, 2))
            scores[:, :, begin:end] += upper[: end - begin, : end - begin]
            weights.append(torch.softmax(scores, dim=-1))
            y[:, begin:end] = torch.bmm(weights[-1], v[:, :end])
        ctx.save_for_backward(packed, cos, sin, *weights)
        return y.view(batch, heads, time, dim).transpose(1, 2).reshape(batch, time, heads * dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # (batch, time, width)
        packed, cos, sin, *weights = ctx.saved_tensors
        _, batch, heads, time, dim = packed.shape
        q, k, v = packed.view(3, batch * heads, time, dim).unbind(0)
        grad_y = grad.view(batch, time, heads, dim).transpose(1, 2).reshape(batch * heads, time, dim)
        grads = torch.zeros((3, batch * heads, time, dim), dtype=packed.dtype)
        grad_q, grad_k, grad_v = grads.unbind(0)
        for number, w in enumerate(weights):
            begin, end = number * BLOCK, min((number + 1) * BLOCK, time)
            g = grad_y[:, begin:end]
            grad_v[:, :end] += torch.bmm(w.transpose(1, 2), g)  # baddbmm_ goes through slices one by one
            grad_w = torch.bmm(g, v[:, :end].transpose(1, 2))
            grad_scores = torch._softmax_backward_data(grad_w, w, -1, w.dtype).mul_(dim**-0.5)
            grad_q[:, begin:end] = torch.bmm(grad_scores, k[:, :end])
            grad_k[:, :end] += torch.bmm(grad_scores.transpose(1, 2), q[:, begin:end])
        by_head = grads.view(3, batch, heads, time, dim)
        result = torch.empty((batch, time, 3, heads, dim), dtype=packed.dtype)
        out = result.permute(2, 0, 3, 1, 4)
        _turn(out[:2], by_head[:2], cos, sin, -1)
        out[2].copy_(by_head[2])
        return result, None, None
