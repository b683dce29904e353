"""Measure four equal half-core workers on two cores, weak scaling: the speedup at 4 against one half-core worker alone.

    sudo PYTHONPATH=python python bench/bench_quarters.py --repeats 3

Every worker has a CPU bandwidth quota of half a core (a control group each), so that four equal, slow workers with real
exchange exist on a machine of two cores. `no exchange` is the speedup of the same workers when they leave the gradients
unexchanged: what it lacks of 4 is contention for caches and memory and quota that is lost at the edges of periods; what
lies between it and the speedup is exchange.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from workers import Bench, show, spread

TARGETS = {"ddp": 3.7, "horovod": 3.7, "mpi": 3.7, "deepspeed": None, "fsdp": None}
PERIOD, QUOTA = 10_000, 5_000  # microseconds
WORKERS = 4
# Joins the group of its local rank, takes the core of its local rank, becomes the command.
JOIN = """
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${LOCAL_RANK:-0}}
echo $$ >"$ECG_BENCH_GROUP$rank/cgroup.procs" && exec taskset -c "$((rank % 2))" "$@"
"""


@contextmanager
def half_cores() -> Iterator[str]:
    """Make one control group per worker with a quota of half a core; yield their common path stem."""
    first = Path("/sys/fs/cgroup/cpu")
    old = (first / "cpu.cfs_quota_us").exists() or (first / "cgroup.procs").exists()
    base = first if old else Path("/sys/fs/cgroup")
    stem = base / f"ecg-bench-{os.getpid()}-"
    groups = [Path(f"{stem}{rank}") for rank in range(WORKERS)]
    try:
        for group in groups:
            group.mkdir()
            if old:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(QUOTA))
            else:
                (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
        yield str(stem)
    except OSError as error:
        raise click.ClickException(
            f"CPU quotas cannot be set here ({error}); they need root and the cpu controller"
        ) from error
    finally:
        for group in groups:
            if group.is_dir():
                group.rmdir()


@click.command(help=__doc__)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Launches per framework.")
@click.option("--steps", type=click.IntRange(3), default=6, show_default=True, help="Steps per launch; 2 not counted.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Sequences per worker.")
@click.option("--model", default="small", show_default=True, help="Model size.")
@click.option("--framework", "chosen", multiple=True, type=click.Choice(list(TARGETS)), help="Only these [all].")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this CSV file.")
def main(repeats: int, steps: int, batch: int, model: str, chosen: tuple, out: Path | None) -> None:
    flags = ["--model", model, "--steps", str(steps), "--calibration-steps", "2", "--device", "cpu", "--threads", "1"]
    flags += ["--scaling", "weak", "--batch", str(batch)]
    names = list(chosen or TARGETS)
    speedups: dict[str, list[float]] = {name: [] for name in names}
    quiet: dict[str, list[float]] = {name: [] for name in names}
    with half_cores() as stem, Bench(flags) as bench:
        environ = {"ECG_BENCH_GROUP": stem, "ECG_BIND": "none"}
        prefix = ("bash", "-c", JOIN, "join")
        once = ("--calibration-steps", "0")
        before = bench.start("serial", 1, *once, prefix=prefix, **environ).timing().step
        for turn in range(repeats):
            for name in names:
                timing = bench.start(name, WORKERS, prefix=prefix, **environ).timing()
                after = bench.start("serial", 1, *once, prefix=prefix, **environ).timing().step
                alone = (before + after) / 2
                before = after
                speedups[name].append(WORKERS * alone / timing.step)
                if timing.quiet:
                    quiet[name].append(WORKERS * alone / timing.quiet)
                click.echo(f"turn {turn + 1} of {repeats}, {name}: {speedups[name][-1]:.2f}", err=True)
    rows = []
    for name in names:
        median, target = statistics.median(speedups[name]), TARGETS[name]
        rows.append(
            {
                "framework": name,
                "speedup at 4": median,
                "range": spread(speedups[name]),
                "no exchange": statistics.median(quiet[name]) if quiet[name] else None,
                "target": target,
                "met": None if target is None else "yes" if median >= target else "no",
            }
        )
    click.echo(f"Four half-core workers on two cores, weak scaling, {model}, {batch} sequences of 256 tokens each:")
    show(rows, out)


if __name__ == "__main__":
    main()
