"""Model sizes and what they cost, without any framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Depth (blocks), width (of the residual stream) and attention heads."""

    depth: int
    width: int
    heads: int


# A vocabulary of 1024 costs little, so the parameters are nearly all in the blocks: 12 * depth * width^2.
# Few wide heads: attention weights cost memory traffic per head, products of 128 columns run well everywhere.
SIZES: dict[str, Size] = {
    "tiny": Size(depth=4, width=128, heads=2),
    "small": Size(depth=6, width=512, heads=4),
    "base": Size(depth=17, width=768, heads=6),
    "medium": Size(depth=28, width=1024, heads=8),
    "large": Size(depth=39, width=1280, heads=10),
    "xl": Size(depth=48, width=1600, heads=20),
}


def parameters(size: Size, vocab_size: int = 1024) -> int:
    """Return the number of parameters: blocks and the tied embedding; the norms have none."""
    return 12 * size.depth * size.width**2 + vocab_size * size.width


def flops_per_token(size: Size, seq_len: int, vocab_size: int = 1024) -> int:
    """Return the model FLOPs of one token's forward and backward pass, recomputation not counted.

    6 per weight of a matrix product (Kaplan et al. 2020, table 1; the output layer is one, the embedding look-up is
    not) and 6 * depth * width * seq_len for attention: half of the 12 * depth * width * seq_len of Chowdhery et al.
    2022, appendix B, because a causal model needs only the lower triangle.
    """
    matrix_weights = size.depth * 12 * size.width**2 + vocab_size * size.width
    return 6 * matrix_weights + 6 * size.depth * size.width * seq_len
