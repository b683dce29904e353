"""Model, start weights and optimizer as all PyTorch strategies build them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ecg_train.config import Config
from ecg_train.errors import UserError
from ecg_train.model import ECGModel, ModelConfig
from ecg_train.tasks import Task

BETAS = (0.9, 0.95)
WEIGHTS_FILE = "weights.safetensors"


def make_model(config: Config, vocab_size: int, task: Task | None = None) -> ECGModel:
    """Return the model on the CPU; the seed alone decides its weights, whatever the framework.

    Raises UserError where ``config.init_from`` names weights that do not fit.
    """
    torch.manual_seed(config.seed)
    model = ECGModel(
        ModelConfig.of(
            config.model,
            vocab_size=vocab_size,
            seq_len=config.seq_len,
            activation_checkpointing=config.activation_checkpointing,
            task=task,
            class_weights=config.class_weights,
        )
    )
    if config.init_from:
        load_weights(model, config.init_from)
    if config.head_only:
        model.requires_grad_(False)
        model.head.requires_grad_(True)
    return model


def load_weights(model: ECGModel, source: str) -> None:
    """Set the weights to those of a run's folder or a safetensors file; a head that the file lacks stays as it is.

    Raises UserError where there are none, or where they are of another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(source) / WEIGHTS_FILE if Path(source).is_dir() else Path(source)
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"--init-from {source!r}: {path} cannot be read: {error}; runs write it with CHECKPOINT=1"
        ) from None
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in found:
            if name.startswith("head."):
                continue
            raise UserError(f"--init-from {source!r}: it has no weight {name!r}; it is of another MODEL")
        if found[name].shape != tensor.shape:
            raise UserError(
                f"--init-from {source!r}: {name} has shape {list(found[name].shape)}, this model's has "
                f"{list(tensor.shape)}; take the same MODEL (and the same classes)"
            )
    foreign = sorted(found.keys() - own.keys() - {"head.weight"})
    if foreign:
        raise UserError(f"--init-from {source!r}: weight {foreign[0]!r} is not of this model; it is of another MODEL")
    model.load_state_dict({name: found.get(name, tensor) for name, tensor in own.items()})


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov & Hutter 2019) as one fused kernel, the same for every framework.

    All weights are matrices (the norms have none), so all decay.
    """
    return torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=config.learning_rate,
        betas=BETAS,
        weight_decay=config.weight_decay,
        fused=True,
    )
