"""The ECG language model: a decoder-only transformer over amplitude tokens.

Pre-norm blocks with RMSNorm, rotary positions, fused causal attention, a GELU MLP and an embedding that is tied
to the output layer. One dial, ``MODEL``, sets every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ecg_train.sizes import SIZES, Size

INIT_STD = 0.02


@dataclass(frozen=True)
class ModelConfig:
    """What a model is built from; two equal configurations and seeds give equal weights."""

    size: Size
    """Depth, width and heads."""
    vocab_size: int = 1024
    """Number of token ids, also the width of the logits."""
    seq_len: int = 256
    """Longest sequence, in tokens: the rotary tables end there."""
    activation_checkpointing: bool = False
    """Recompute each block in the backward pass instead of keeping its activations."""

    @classmethod
    def of(cls, name: str, **changes: object) -> ModelConfig:
        """Return the configuration of the size called ``name``."""
        return cls(SIZES[name], **changes)  # type: ignore[arg-type]


def rotary_tables(seq_len: int, head_dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the rotary angles, each (seq_len, head_dim) in fp32 (Su et al. 2021, eq. 34).

    The two halves of a head turn against each other (the layout of GPT-NeoX), so a table holds each angle twice and
    the sine of the first half is negated: then ``x * cos + roll(x) * sin`` is the whole rotation.
    """
    angles = torch.outer(
        torch.arange(seq_len, dtype=torch.float32), base ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    )
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys (batch, heads, time, head_dim) by the angles of their positions (time, head_dim)."""
    return torch.addcmul(x * cos, x.roll(x.size(-1) // 2, dims=-1), sin)


class RMSNorm(nn.Module):
    """Scale each vector of ``dim`` to unit root mean square, then by a learned weight (Zhang & Sennrich 2019)."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:  # (..., dim)
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Causal multi-head self-attention with one product for query, key and value."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (batch, time, width)
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))  # (batch, heads, time, head_dim)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    """Widen four times, GELU, narrow again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (batch, time, width)
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One pre-norm residual block: attention, then MLP."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1 = RMSNorm(size.width)
        self.attention = Attention(size)
        self.norm2 = RMSNorm(size.width)
        self.mlp = MLP(size.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (batch, time, width)
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class ECGModel(nn.Module):
    """Predict the next token of an ECG at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        size = config.size
        self.embedding = nn.Embedding(config.vocab_size, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        self.norm = RMSNorm(size.width)
        cos, sin = rotary_tables(config.seq_len, size.width // size.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._initialise)
        # GPT-2: the layers that write into the residual stream start smaller, so that its variance does not grow
        # with depth.
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):
                nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * size.depth))

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INIT_STD)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the normalised last hidden state (batch, time, width) of token ids (batch, time)."""
        x = self.embedding(tokens)
        time = tokens.size(1)
        cos, sin = self.cos[:time].to(x.dtype), self.sin[:time].to(x.dtype)
        for block in self.blocks:
            if self.config.activation_checkpointing and self.training:
                x = checkpoint(block, x, cos, sin, use_reentrant=False)
            else:
                x = block(x, cos, sin)
        return self.norm(x)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy in nats, a scalar; without targets the logits (batch, time, vocab).

        ``tokens`` and ``targets`` are int64 (batch, time). The embedding is tied: its weight is also the output layer.
        """
        logits = F.linear(self.hidden(tokens), self.embedding.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.reshape(-1))


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
