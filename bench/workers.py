"""Start training workers for a measurement and read their step times. Shared by the benches that train."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from bench_loader import make_set
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
MPI = ("horovod", "mpi")
WARMUP = 2  # first steps allocate and tune; they are not counted


@dataclass
class Timing:
    """What the workers of one launch measured."""

    step: float
    """Median over steps of the slowest worker's step time, seconds."""
    quiet: float | None
    """The same for the exchange-off steps; None where there are none."""


class Bench:
    """A folder with random data, in which launches run."""

    def __init__(self, flags: list[str]) -> None:
        """``flags`` go to every worker."""
        self._folder = tempfile.TemporaryDirectory(prefix="ecg-bench-")
        self.folder = Path(self._folder.name)
        data = self.folder / "data" / "random"
        data.mkdir(parents=True)
        make_set(data, tokens=1 << 21, shards=1)
        common = ["--dataset", "random", "--data-dir", str(self.folder / "data"), "--eval-batches", "0"]
        self.flags = [*common, *flags]
        self._count = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def start(self, framework: str, world: int, *flags: str, prefix: tuple[str, ...] = (), **environ: str) -> Launch:
        """Start ``world`` workers; ``prefix`` is put before each worker's command."""
        self._count += 1
        run_dir = self.folder / f"run{self._count}"
        worker = [*prefix, str(ROOT / "bin" / "with-ranks"), sys.executable, "-m", f"ecg_train.train_{framework}"]
        command = [*worker, *self.flags, *flags, "--run-dir", str(run_dir), "--expected-world", str(world)]
        if framework in MPI:
            command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(world), *command]
        elif framework != "serial":
            command = [str(ROOT / "bin" / "launch-local"), str(world), *command]
        env = dict(os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}", DS_LOG_LEVEL="error")
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environ}
        if os.getuid() == 0:
            env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        log = (self.folder / f"log{self._count}").open("w+")
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return Launch(f"{framework} with {world} workers", process, log, run_dir, world)


class Launch:
    """Workers that are running."""

    def __init__(self, what: str, process: subprocess.Popen, log, run_dir: Path, world: int) -> None:
        self.what, self._process, self._log, self._run_dir, self._world = what, process, log, run_dir, world

    def timing(self) -> Timing:
        """Wait for the end; ClickException with the last words of the log when it failed."""
        code = self._process.wait()
        self._log.seek(0)
        text = self._log.read()
        self._log.close()
        if code:
            raise click.ClickException(f"{self.what} ended with status {code}: {text[-2000:]}")
        steps, quiet = [], []
        for rank in range(self._world):
            lines = [json.loads(line) for line in (self._run_dir / f"rank{rank}.jsonl").open()]
            steps.append([row["value"]["step_time"] for row in lines if row["key"] == "tracked_stats"][WARMUP:])
            quiet.append([row["value"]["step_time"] for row in lines if row["key"] == "ecg_calibration"])
        shutil.rmtree(self._run_dir)
        slowest = [max(times) for times in zip(*steps, strict=True)]
        alone = [max(times) for times in zip(*quiet, strict=True)]
        return Timing(statistics.median(slowest), statistics.median(alone) if alone else None)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def spread(values: list[float]) -> str:
    """Return the smallest and the largest, for the table."""
    return f"{min(values):.3f} to {max(values):.3f}"


def show(rows: list[dict], out: Path | None) -> None:
    """Print the rows as a table and, if asked, write them as CSV."""
    click.echo(tabulate(rows, headers="keys", floatfmt=".3f"))
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        click.echo(f"written: {out}", err=True)
