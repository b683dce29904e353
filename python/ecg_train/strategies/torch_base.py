"""What the PyTorch strategies share: the ordinary optimizer step, with hooks that each framework overrides."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecg_train.config import Config
from ecg_train.errors import UserError
from ecg_train.model import parameter_count
from ecg_train.strategies.base import StepResult, World
from ecg_train.strategies.torch_build import make_model, make_optimizer
from ecg_train.tasks import Task


class TorchStrategy:
    """The ordinary training step of one process; subclasses override the hooks that differ."""

    name = "torch"

    def __init__(self) -> None:
        self.world: World | None = None
        self.module: nn.Module  # the bare model
        self.model: nn.Module  # what is called: the wrapped or compiled model
        self.optimizer: torch.optim.Optimizer

    # -- the world ---------------------------------------------------------------------------------------------

    def start(self, config: Config) -> World:
        if self.world is not None:
            raise RuntimeError("start() was called twice")
        torch.set_num_threads(config.threads or len(os.sched_getaffinity(0)))
        rank, local_rank, size = self.join(config)
        self.device = self.pick_device(config, local_rank)
        self.world = World(rank, local_rank, size, str(self.device))
        return self.world

    def join(self, config: Config) -> tuple[int, int, int]:
        """Join the world; return rank, local rank and world size."""
        return 0, 0, 1

    @staticmethod
    def pick_device(config: Config, local_rank: int) -> torch.device:
        """Return the device of this worker: its local rank's GPU, or the only visible one, or the CPU."""
        if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
            return torch.device("cpu")
        count = torch.cuda.device_count()
        if count == 0:
            raise UserError("--device cuda: no GPU is visible to PyTorch; take --device cpu, or check the driver")
        if count > 1 and local_rank >= count:
            raise UserError(f"local rank {local_rank} has no GPU: {count} are visible; ask for fewer workers per node")
        device = torch.device("cuda", local_rank if count > 1 else 0)
        torch.cuda.set_device(device)
        return device

    # -- building ----------------------------------------------------------------------------------------------

    def build(self, config: Config, vocab_size: int, task: Task | None = None) -> None:
        self.config, self.task = config, task
        # FSDP and GPUs aside, products in full fp32: TF32 would make fp32 runs unequal between devices.
        torch.backends.cuda.matmul.allow_tf32 = False
        self.module = make_model(config, vocab_size, task).to(self.device)
        self.parameters_total = parameter_count(self.module)
        self.model = self.wrap(self.module)
        self.optimizer = self.wrap_optimizer(make_optimizer(self.model, config))

    def compiled(self, model: nn.Module) -> nn.Module:
        """Return ``model``, compiled if that was asked for."""
        return torch.compile(model) if self.config.compile else model

    def wrap(self, model: nn.Module) -> nn.Module:
        """Place the model under the framework."""
        return self.compiled(model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Place the optimizer under the framework."""
        return optimizer

    # -- the step ----------------------------------------------------------------------------------------------

    def train_step(
        self, micro_batches: Sequence[np.ndarray], learning_rate: float, exchange: bool = True
    ) -> StepResult:
        self.set_learning_rate(learning_rate)
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(micro_batches, start=1):
            with self.exchange_on(exchange and number == len(micro_batches)):
                loss = self.loss(batch)
                self.backward(loss, len(micro_batches))
            total += loss.detach()
        norm = self.finish(exchange)
        return StepResult(float(total) / len(micro_batches), None if norm is None else float(norm))

    def set_learning_rate(self, learning_rate: float) -> None:
        """Give every parameter group the learning rate of this step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def exchange_on(self, on: bool) -> AbstractContextManager:
        """Return the context of one micro-batch, whose gradients are exchanged if ``on``."""
        return contextlib.nullcontext()

    def autocast(self) -> AbstractContextManager:
        """Return the context of the forward pass: products in bfloat16 when that was asked for."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.config.precision == "bf16")

    def loss(self, batch: np.ndarray) -> Tensor:
        """Return the mean cross entropy of ``batch``: int64 (rows, seq_len + 1), or rows of the task."""
        if self.task is not None:
            targets = torch.from_numpy(self.task.targets(batch)).to(self.device, non_blocking=True)
            with self.autocast():
                return self.model(self.tokens(batch), targets)
        tokens = torch.from_numpy(batch).to(self.device, non_blocking=True)
        with self.autocast():
            return self.model(tokens[:, :-1], tokens[:, 1:])

    def tokens(self, rows: np.ndarray) -> Tensor:
        """Return the tokens of a task's rows on the device, int64 (rows, seq_len)."""
        return torch.from_numpy(self.task.tokens(rows)).to(self.device, non_blocking=True)

    def backward(self, loss: Tensor, micro_batches: int) -> None:
        """Add the gradient of this micro-batch's share of the mean loss."""
        (loss / micro_batches if micro_batches > 1 else loss).backward()

    def finish(self, exchange: bool) -> Tensor | None:
        """Clip, update and clear; return the norm of the gradient."""
        norm = self.clip(self.model.parameters())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def clip(self, parameters: Iterable[Tensor]) -> Tensor:
        """Scale the gradients down to the largest global norm (0: leave them); return the norm before."""
        return torch.nn.utils.clip_grad_norm_(parameters, self.config.clip or float("inf"))

    def no_calibration(self) -> str | None:
        return None

    def eval_loss(self, batch: np.ndarray) -> float:
        self.model.eval()
        with torch.no_grad():
            value = float(self.loss(batch))
        self.model.train()
        return value

    def predict(self, rows: np.ndarray) -> np.ndarray:
        self.model.eval()
        with torch.no_grad(), self.autocast():
            logits = self.model(self.tokens(rows)).float()
        self.model.train()
        chances = logits.sigmoid() if self.task.multilabel else logits.softmax(dim=1)
        return chances.double().cpu().numpy()

    # -- the rest ----------------------------------------------------------------------------------------------

    def mean(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def all_reduce(self, count: int) -> None:
        self.reduce(self.zeros(count))

    def reduce(self, flat: Tensor) -> None:
        """Sum a flat tensor over all workers, in place."""

    def zeros(self, count: int) -> Tensor:
        """Return ``count`` zeros on the device, the same memory at each call."""
        if getattr(self, "_zeros", None) is None or self._zeros.numel() != count:
            self._zeros = torch.zeros(count, device=self.device)
        return self._zeros

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def facts(self) -> dict[str, Any]:
        cuda = self.device.type == "cuda"
        return {
            "framework_version": torch.__version__,
            "torch_version": torch.__version__,
            "backend": "none",
            "device": self.device.type,
            "device_name": torch.cuda.get_device_name(self.device) if cuda else _cpu_name(),
            "threads": torch.get_num_threads(),
            "parameters": self.parameters_total,
        }

    def usage(self) -> dict[str, Any]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        host = own.ru_maxrss * 1024  # Linux counts in KiB
        cuda = self.device.type == "cuda"
        return {
            "peak_memory_bytes": torch.cuda.max_memory_allocated(self.device) if cuda else host,
            "peak_host_bytes": host,
            "cpu_time": own.ru_utime + own.ru_stime,
        }

    def weights(self) -> dict[str, Tensor]:
        """Return the whole weights by name. Every worker must call it."""
        return {name: tensor.detach().cpu() for name, tensor in self.module.state_dict().items()}

    def save(self, path: Path) -> None:
        self.write(path, self.weights(), None)

    def write(self, path: Path, tensors: dict[str, Tensor], facts: dict[str, str] | None) -> None:
        """Let rank 0 write a safetensors file, whole or not at all."""
        from safetensors.torch import save_file

        if self.world is not None and self.world.rank == 0:
            temporary = path.with_name(path.name + ".part")
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, facts)
            temporary.replace(path)

    # -- going on after a stop -----------------------------------------------------------------------------------

    def no_state(self) -> str | None:
        return None

    def trained(self) -> list[tuple[str, Tensor]]:
        """Return name and parameter as the optimizer knows it, in its order."""
        names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        held = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return list(zip(names, held, strict=True))

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor that may be sharded as a whole one. Every worker must call it."""
        return tensor

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return a whole tensor sharded as ``like`` is."""
        return tensor.to(like.device)

    def save_state(self, path: Path, facts: dict[str, str]) -> None:
        found = {f"weights.{name}": tensor for name, tensor in self.weights().items()}
        for name, parameter in self.trained():
            for kind, value in self.optimizer.state[parameter].items():
                found[f"optimizer.{kind}.{name}"] = self.whole(value).detach().cpu()
        self.write(path, found, facts)

    def load_state(self, path: Path) -> None:
        from safetensors.torch import load_file

        found = load_file(path)
        with torch.no_grad():
            trained = self.trained()
            for name, parameter in self.module.named_parameters():
                parameter.copy_(self.placed(found[f"weights.{name}"], parameter))
            for name, parameter in trained:
                state = {}
                for kind in ("exp_avg", "exp_avg_sq", "step"):
                    value = found[f"optimizer.{kind}.{name}"]
                    # What has no dimension, the count of steps, is nowhere sharded.
                    state[kind] = self.placed(value, parameter) if value.dim() else value.to(self.device)
                self.optimizer.state[parameter] = state

    def stop(self, ok: bool) -> None:
        return None


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"
