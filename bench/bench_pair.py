"""Measure two workers on two cores against the ceiling: two independent single workers at the same time.

    PYTHONPATH=python python bench/bench_pair.py --repeats 3

Ceiling and framework take turns, and each launch is divided by the mean of the ceilings before and after it. A ratio
of 0.97 says that exchange costs 3 % of the time. `exchange` is the share of the step that the same launch saves when
it leaves the gradients unexchanged; the rest of the loss is work that the framework itself adds.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import click
from workers import Bench, show, spread

TARGETS = {"ddp": 0.97, "horovod": 0.97, "mpi": 0.97, "deepspeed": 0.93, "fsdp": 0.93}
BATCH = {"strong": 16, "weak": 12}  # global, and per worker


def ceiling(bench: Bench, worker_batch: int, cores: list[int]) -> float:
    """Return the step time of single workers that run side by side, the slower one's."""
    flags = ("--scaling", "weak", "--batch", str(worker_batch), "--calibration-steps", "0")
    launches = [bench.start("serial", 1, *flags, prefix=("taskset", "-c", str(core))) for core in cores]
    return max(launch.timing().step for launch in launches)


def measure(bench: Bench, scaling: str, frameworks: list[str], repeats: int, cores: list[int]) -> list[dict]:
    """Return a row per framework."""
    batch = BATCH[scaling]
    worker_batch = batch // 2 if scaling == "strong" else batch
    ratios: dict[str, list[float]] = {name: [] for name in frameworks}
    steps: dict[str, list[float]] = {name: [] for name in frameworks}
    exchange: dict[str, list[float]] = {name: [] for name in frameworks}
    before = ceiling(bench, worker_batch, cores)
    for turn in range(repeats):
        for name in frameworks:
            both = ",".join(map(str, cores))
            launch = bench.start(
                name, 2, "--scaling", scaling, "--batch", str(batch), prefix=("taskset", "-c", both), ECG_CORES="1"
            )
            timing = launch.timing()
            after = ceiling(bench, worker_batch, cores)
            ratios[name].append((before + after) / 2 / timing.step)
            steps[name].append(timing.step)
            if timing.quiet:
                exchange[name].append(1 - timing.quiet / timing.step)
            before = after
            click.echo(f"{scaling}, turn {turn + 1} of {repeats}, {name}: {ratios[name][-1]:.3f}", err=True)
    return [
        {
            "scaling": scaling,
            "framework": name,
            "worker batch": worker_batch,
            "step [s]": statistics.median(steps[name]),
            "of ceiling": statistics.median(ratios[name]),
            "range": spread(ratios[name]),
            "exchange": statistics.median(exchange[name]) if exchange[name] else None,
            "target": TARGETS[name],
            "met": "yes" if statistics.median(ratios[name]) >= TARGETS[name] else "no",
        }
        for name in frameworks
    ]


@click.command(help=__doc__)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Launches per framework.")
@click.option("--steps", type=click.IntRange(3), default=6, show_default=True, help="Steps per launch; 2 not counted.")
@click.option("--model", default="small", show_default=True, help="Model size.")
@click.option("--framework", "chosen", multiple=True, type=click.Choice(list(TARGETS)), help="Only these [all].")
@click.option("--scaling", "scalings", multiple=True, type=click.Choice(list(BATCH)), help="Only these [both].")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this CSV file.")
def main(repeats: int, steps: int, model: str, chosen: tuple, scalings: tuple, out: Path | None) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise click.ClickException("two cores are needed, one may be used here")
    flags = ["--model", model, "--steps", str(steps), "--calibration-steps", "2", "--device", "cpu", "--threads", "1"]
    rows = []
    with Bench(flags) as bench:
        for scaling in scalings or BATCH:
            rows += measure(bench, scaling, list(chosen or TARGETS), repeats, cores)
    click.echo(f"Two workers on two cores, {model}, sequences of 256 tokens:")
    show(rows, out)


if __name__ == "__main__":
    main()
