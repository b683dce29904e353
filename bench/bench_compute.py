"""Measure one worker on one core: its model FLOP/s over the FLOP/s of a large matrix product in the same process.

    PYTHONPATH=python python bench/bench_compute.py --repeats 9

Product and training step take turns, and each step is divided by the mean of the products before and after it, so that
a machine whose clock wanders harms both alike. A step is the real one: batch from the loader's form, forward, backward,
clipping, AdamW. Model FLOPs count the lower triangle of attention only (ecg_train.sizes.flops_per_token).
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import click
import numpy as np
import torch
from workers import show, spread

from ecg_train.config import Config
from ecg_train.sizes import SIZES, flops_per_token
from ecg_train.strategies.serial import Serial

TARGETS = {"fp32": 0.90, "bf16": 0.75}
SIDE = 4096


def product_rate(dtype: torch.dtype) -> float:
    """Return the FLOP/s of one product of two square matrices."""
    a, b = torch.ones(SIDE, SIDE, dtype=dtype), torch.ones(SIDE, SIDE, dtype=dtype)
    begun = time.perf_counter()
    torch.mm(a, b)
    return 2 * SIDE**3 / (time.perf_counter() - begun)


def measure(model: str, precision: str, batch: int, seq_len: int, repeats: int, compiled: bool) -> dict:
    """Return the row of one precision."""
    strategy = Serial()
    config = Config(
        model=model, precision=precision, batch=batch, seq_len=seq_len, device="cpu", threads=1, compile=compiled
    )
    strategy.start(config)
    strategy.build(config, 1024)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    tokens = np.random.default_rng(1).integers(64, 1024, (batch, seq_len + 1))
    flops = flops_per_token(SIZES[model], seq_len) * batch * seq_len
    for _ in range(2):
        product_rate(dtype)
        strategy.train_step([tokens], 1e-4)
    products, rates, ratios = [product_rate(dtype)], [], []
    for _ in range(repeats):
        begun = time.perf_counter()
        strategy.train_step([tokens], 1e-4)
        rates.append(flops / (time.perf_counter() - begun))
        products.append(product_rate(dtype))
        ratios.append(rates[-1] / statistics.mean(products[-2:]))
    median = statistics.median(ratios)
    return {
        "precision": precision,
        "compiled": compiled,
        "step [s]": flops / statistics.median(rates),
        "model [GFLOP/s]": statistics.median(rates) / 1e9,
        "product [GFLOP/s]": statistics.median(products) / 1e9,
        "ratio": median,
        "range": spread(ratios),
        "target": TARGETS[precision],
        "met": "yes" if median >= TARGETS[precision] else "no",
    }


@click.command(help=__doc__)
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True, help="Steps that are measured.")
@click.option("--model", type=click.Choice(list(SIZES)), default="small", show_default=True, help="Model size.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Sequences of a step.")
@click.option("--seq-len", type=click.IntRange(8), default=256, show_default=True, help="Tokens of a sequence.")
@click.option("--compile/--no-compile", "with_compile", default=True, help="Measure under torch.compile too.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this CSV file.")
def main(repeats: int, model: str, batch: int, seq_len: int, with_compile: bool, out: Path | None) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = []
    for compiled in (False, True) if with_compile else (False,):
        for precision in TARGETS:
            click.echo(f"{model}, {precision}{', compiled' if compiled else ''} ...", err=True)
            rows.append(measure(model, precision, batch, seq_len, repeats, compiled))
    click.echo(f"One core, {model}, {batch} sequences of {seq_len} tokens; product of {SIDE} x {SIDE} matrices:")
    show(rows, out)


if __name__ == "__main__":
    main()
