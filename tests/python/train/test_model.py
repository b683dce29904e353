"""The model: sizes, causality, its own CPU functions against PyTorch's, FLOPs against PyTorch's counter."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from ecg_train import attention as attention_module
from ecg_train.attention import attention, rotary_tables, rotate
from ecg_train.model import ECGModel, ModelConfig, parameter_count
from ecg_train.norm import EPSILON, rms_norm
from ecg_train.sizes import SIZES, Size, flops_per_token, parameters

SMALLEST = ModelConfig(Size(depth=2, width=32, heads=2), vocab_size=64, seq_len=48)


def test_parameter_formula_counts_the_real_model() -> None:
    for name in ("tiny", "small"):
        model = ECGModel(ModelConfig.of(name))
        assert parameter_count(model) == parameters(SIZES[name])


@pytest.mark.parametrize(
    ("name", "millions"), [("small", 20), ("base", 124), ("medium", 350), ("large", 770), ("xl", 1500)]
)
def test_sizes_are_what_their_names_promise(name, millions) -> None:
    assert parameters(SIZES[name]) / 1e6 == pytest.approx(millions, rel=0.05)
    assert parameters(SIZES["tiny"]) < 1e6


def test_widths_divide_into_even_heads() -> None:
    for size in SIZES.values():
        assert size.width % (2 * size.heads) == 0


def test_no_token_sees_the_future() -> None:
    """Changing a token changes no logit before it, and changes some from it on."""
    torch.manual_seed(0)
    model = ECGModel(SMALLEST)
    tokens = torch.randint(64, (2, 48))
    changed = tokens.clone()
    changed[:, 30] = (changed[:, 30] + 1) % 64
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :30], after[:, :30])
    assert not torch.equal(before[:, 30:], after[:, 30:])


@pytest.mark.parametrize("time", [1, 63, 64, 65, 200])
def test_blocked_attention_equals_the_library(time, monkeypatch) -> None:
    """Values and gradients of the CPU path are those of scaled_dot_product_attention with plain rotation."""
    torch.manual_seed(0)
    cos, sin = rotary_tables(time, 16)
    results = []
    base = torch.randn(2, time, 3 * 64)
    weight = torch.randn(2, time, 64)
    for limit in (0, 1024):
        monkeypatch.setattr(attention_module, "CPU_LIMIT", limit)
        qkv = base.clone().requires_grad_()
        out = attention(qkv, 4, cos, sin)
        (out * weight).sum().backward()
        results.append((out.detach(), qkv.grad))
    for library, own in zip(*results, strict=True):
        torch.testing.assert_close(own, library, atol=2e-5, rtol=1e-4)


def test_blocked_attention_gradients_are_right() -> None:
    """Against finite differences in double precision."""
    cos, sin = (table.double() for table in rotary_tables(5, 4))
    qkv = torch.randn(1, 5, 3 * 8, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: attention(x, 2, cos, sin), (qkv,))


def test_rotation_keeps_length_and_depends_on_distance_only() -> None:
    """The two properties that define rotary positions (Su et al. 2021)."""
    cos, sin = rotary_tables(20, 8)
    q, k = torch.randn(8), torch.randn(8)
    turned_q, turned_k = rotate(q.expand(20, 8), cos, sin), rotate(k.expand(20, 8), cos, sin)
    torch.testing.assert_close(turned_q.norm(dim=1), q.norm().expand(20))
    products = turned_q @ turned_k.T
    torch.testing.assert_close(products[3, 1], products[12, 10])
    torch.testing.assert_close(products[7, 7], q @ k)


def test_rms_norm_equals_the_library() -> None:
    x = torch.randn(3, 7, 16, dtype=torch.double, requires_grad=True)
    torch.testing.assert_close(rms_norm(x), F.rms_norm(x, (16,), eps=EPSILON))
    assert torch.autograd.gradcheck(rms_norm, (x,))
    y = torch.randn(4, 16, requires_grad=True)
    library = y.detach().clone().requires_grad_()
    weight = torch.randn(4, 16)
    (rms_norm(y) * weight).sum().backward()
    (F.rms_norm(library, (16,), eps=EPSILON) * weight).sum().backward()
    torch.testing.assert_close(y.grad, library.grad)


def test_flops_formula_against_the_counter() -> None:
    """PyTorch's counter sees every product. A sequence of one block attends in the whole square: twice the triangle."""
    size = Size(depth=3, width=64, heads=4)
    time, batch, vocab = 32, 2, 128
    assert time <= attention_module.BLOCK
    model = ECGModel(ModelConfig(size, vocab_size=vocab, seq_len=time))
    tokens = torch.randint(vocab, (batch, time + 1))
    with FlopCounterMode(display=False) as counter:
        model(tokens[:, :-1], tokens[:, 1:]).backward()
    matrices = 6 * (size.depth * 12 * size.width**2 + vocab * size.width)
    ours = flops_per_token(size, time, vocab) - matrices
    counted = counter.get_total_flops() / (batch * time) - matrices
    assert counted == 2 * ours


def test_activation_checkpointing_changes_no_gradient() -> None:
    grads = []
    for switch in (False, True):
        torch.manual_seed(0)
        model = ECGModel(ModelConfig(SMALLEST.size, 64, 48, activation_checkpointing=switch))
        tokens = torch.arange(98).view(2, 49) % 64
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*grads)


def test_the_first_loss_is_that_of_a_uniform_guess() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(1024, (2, 65))
    loss = ECGModel(ModelConfig.of("tiny"))(tokens[:, :-1], tokens[:, 1:])
    assert float(loss.detach()) == pytest.approx(math.log(1024), abs=0.1)
