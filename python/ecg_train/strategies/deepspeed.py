"""DeepSpeed: its engine owns backward, accumulation and update; ZeRO 0 to 3 shard more and more of the state."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from ecg_train.config import Config
from ecg_train.model import parameter_count
from ecg_train.strategies.memory import keep_freed_memory
from ecg_train.strategies.process_group import ProcessGroupStrategy
from ecg_train.strategies.torch_build import make_model, make_optimizer
from ecg_train.tasks import Task

os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")

import deepspeed
from deepspeed import comm as deepspeed_comm


class DeepSpeed(ProcessGroupStrategy):
    """Train under DeepSpeed's engine. bf16 is autocast, as for the others, so that the weights stay in fp32."""

    name = "deepspeed"

    def init_group(self, config: Config, rank: int, size: int, device: torch.device) -> None:
        super().init_group(config, rank, size, device)
        # An inference-only collective that it would compile at the first start, for a minute and more.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(dist_backend=self.backend, auto_mpi_discovery=False)

    def build(self, config: Config, vocab_size: int, task: Task | None = None) -> None:
        self.config, self.task = config, task
        torch.backends.cuda.matmul.allow_tf32 = False
        if self.device.type == "cpu":
            keep_freed_memory()
        self.module = make_model(config, vocab_size, task).to(self.device)
        self.parameters_total = parameter_count(self.module)
        rows = config.global_batch(self.world.size) // (self.world.size * config.accumulation)
        # Without ZeRO the engine clips but does not tell the norm; so there we clip, with the others' function.
        self.clips_itself = config.zero_stage > 0
        bucket = {"reduce_bucket_size": int(config.bucket_mb * (1 << 18))} if config.bucket_mb else {}
        settings: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": rows,
            "gradient_accumulation_steps": config.accumulation,
            "gradient_clipping": config.clip if self.clips_itself else 0.0,
            "zero_optimization": {"stage": config.zero_stage} | (bucket if config.zero_stage else {}),
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1 << 40,
        }
        engine, optimizer, _, _ = deepspeed.initialize(
            model=self.compiled(self.module),
            optimizer=make_optimizer(self.module, config),
            config=settings,
            dist_init_required=False,
        )
        self.engine, self.optimizer, self.model = engine, optimizer, engine

    def backward(self, loss: Tensor, micro_batches: int) -> None:
        self.engine.backward(loss)  # the engine divides by the number of micro-batches
        if not self.engine.is_gradient_accumulation_boundary():
            self.engine.step()  # counts the micro-batch

    def finish(self, exchange: bool) -> Tensor | None:
        norm = None if self.clips_itself else self.clip(self.module.parameters())
        self.engine.step()
        return self.engine.get_global_grad_norm() if self.clips_itself else norm

    def train_step(self, micro_batches, learning_rate, exchange=True):
        if exchange:
            return super().train_step(micro_batches, learning_rate, exchange)
        real, deepspeed_comm.comm.cdb = deepspeed_comm.comm.cdb, Silent(deepspeed_comm.comm.cdb)
        try:
            return super().train_step(micro_batches, learning_rate, exchange)
        finally:
            deepspeed_comm.comm.cdb = real

    def no_calibration(self) -> str | None:
        if self.config.zero_stage == 3:
            return "ZeRO 3 cannot compute without gathering the weights"
        return None

    def no_state(self) -> str | None:
        if self.config.zero_stage:
            return f"ZeRO {self.config.zero_stage} keeps its state in files of DeepSpeed's own, which load by pickle"
        return None

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"framework_version": deepspeed.__version__}

    def weights(self) -> dict[str, Tensor]:
        with deepspeed.zero.GatheredParameters(list(self.module.parameters()), enabled=self.config.zero_stage == 3):
            return super().weights()


class Done:
    """A collective that has already ended."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Silent:
    """DeepSpeed's communication back end with the collectives left out; all other questions go to the real one."""

    COLLECTIVES = frozenset(
        {
            "all_reduce", "all_reduce_coalesced", "inference_all_reduce", "reduce", "reduce_scatter",
            "reduce_scatter_tensor", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "broadcast",
        }
    )  # fmt: skip

    def __init__(self, real: Any) -> None:
        self.__dict__["real"] = real

    def __getattr__(self, name: str) -> Any:
        if name in self.COLLECTIVES:
            return lambda *_, **__: Done()
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)
