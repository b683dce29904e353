"""The ECG language model: a decoder-only transformer over amplitude tokens.

Pre-norm blocks with RMSNorm, rotary positions, causal attention, a GELU MLP and an embedding that is tied to the
output layer. One dial, ``MODEL``, sets every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ecg_train.attention import attention, rotary_tables
from ecg_train.norm import rms_norm
from ecg_train.sizes import SIZES, Size
from ecg_train.tasks import Task

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
    task: Task | None = None
    """Classes to tell apart; None: predict the next token."""
    class_weights: str = "none"
    """How much a class counts in the loss (see Task.weights)."""

    @classmethod
    def of(cls, name: str, **changes: object) -> ModelConfig:
        """Return the configuration of the size called ``name``."""
        return cls(SIZES[name], **changes)  # type: ignore[arg-type]


class Attention(nn.Module):
    """Causal multi-head self-attention with one product for query, key and value."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (batch, time, width)
        return self.out(attention(self.qkv(x), self.heads, cos, sin))


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
        self.attention = Attention(size)
        self.mlp = MLP(size.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (batch, time, width)
        x = x + self.attention(rms_norm(x), cos, sin)
        return x + self.mlp(rms_norm(x))


class ECGModel(nn.Module):
    """Predict the next token of an ECG at every position, or, given a task, the class of a sequence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        size = config.size
        self.embedding = nn.Embedding(config.vocab_size, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        cos, sin = rotary_tables(config.seq_len, size.width // size.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.head = nn.Linear(size.width, len(config.task.classes), bias=False) if config.task else None
        weights = config.task.weights(config.class_weights) if config.task else None
        self.register_buffer("class_weights", None if weights is None else torch.from_numpy(weights), persistent=False)
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
        if torch.is_autocast_enabled(x.device.type):
            # Autocast leaves the embedding in fp32 and would then cast before each product; once is cheaper.
            x = x.to(torch.get_autocast_dtype(x.device.type))
        time = tokens.size(1)
        cos, sin = self.cos[:time].to(x.dtype), self.sin[:time].to(x.dtype)
        for block in self.blocks:
            if self.config.activation_checkpointing and self.training:
                x = checkpoint(block, x, cos, sin, use_reentrant=False)
            else:
                x = block(x, cos, sin)
        return rms_norm(x)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy in nats, a scalar; without targets the logits (batch, time, vocab).

        ``tokens`` and ``targets`` are int64 (batch, time). The embedding is tied: its weight is also the output layer.
        With a task the logits are (batch, classes) and the targets as Task.targets gives them.
        """
        if self.head is not None:
            return self.classify(tokens, targets)
        logits = F.linear(self.hidden(tokens), self.embedding.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.reshape(-1))

    def classify(self, tokens: Tensor, targets: Tensor | None) -> Tensor:
        """Return the weighted cross entropy, or the logits (batch, classes): the head reads the mean hidden state."""
        logits = self.head(self.hidden(tokens).mean(dim=1)).float()
        if targets is None:
            return logits
        if self.config.task.multilabel:
            return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=self.class_weights)
        # Divided by the examples, not by their weights: the mean over workers is then the mean over the batch.
        return F.cross_entropy(logits, targets, weight=self.class_weights, reduction="sum") / targets.numel()


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
