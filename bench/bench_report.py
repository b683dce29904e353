"""Measure how fast `analysis report` reads step lines, and how much memory it takes.

Makes logs of the writer's own line shape in a temporary folder, runs the command on them, and prints MB/s,
peak memory of all its processes, MB per CPU second (which other load moves less) and, as yardsticks in the
same run, the speed of merely reading the bytes and of `json.loads` line by line. Shapes: `log` is one run
known by its log alone, so that every line becomes a row of steps.csv; `workers` is four runs with a log and
two workers' files each, three lines to a step.

    python bench/bench_report.py --lines 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from ecg_train.logline import TOKEN, LogWriter, record  # noqa: E402 - the path is set above

LIMIT = 100.0  # MB/s
BLOCK = 20000
BYTES_PER_LINE = 450
CASES = ((1_000_000, "log"), (1_000_000, "workers"), (10_000_000, "log"))
STEP = {
    "step": 1,
    "step_time": 2.5,
    "data_time": 3.5,
    "loss": 4.5,
    "local_loss": 5.5,
    "grad_norm": 6.5,
    "learning_rate": 7.5,
}
STEP |= {"edge_time": 8.5}


def identity(world: int, steps: int) -> dict[str, object]:
    """Return an identity that is complete enough for every column of the report."""
    fixed = {
        "framework": "ddp",
        "framework_version": "2",
        "backend": "gloo",
        "device": "cpu",
        "nodes": 1,
        "mode": "pretrain",
    }
    sizes = {"global_batch": 16, "worker_batch": 16 // world, "seq_len": 256, "tokens_per_step": 4096, "world": world}
    rest = {"scaling": "strong", "model": "small", "precision": "fp32", "seed": 1, "steps": steps, "timing_warmup": 10}
    return fixed | sizes | rest | {"synthetic": True, "dataset": "made", "flops_per_token": 120_000_000}


def template(run: str, rank: int, token: bool) -> str:
    """Return the writer's own step line as a format: its numbers become places for the values."""
    line = record(run, rank, "tracked_stats", STEP, step=1).replace("%", "%%")
    for name, value in STEP.items():
        form = "%d" if name == "step" else "%r"
        line = line.replace(f'"{name}":{value}', f'"{name}":{form}', 1)
    head, tail = line.rsplit('"step":1', 1)
    return (TOKEN if token else "") + head + '"step":%d' + tail + "\n"


class _FileOnly:
    """A writer of bare lines into an open file: LogWriter would open one of its own."""

    def __init__(self, run: str, rank: int, file: io.TextIOBase) -> None:
        self.run, self.rank, self.file = run, rank, file

    def event(self, key: str, value: object = None, **metadata: object) -> None:
        self.file.write(record(self.run, self.rank, key, value, **metadata) + "\n")


def fill(path: Path, run: str, rank: int, world: int, steps: int, token: bool) -> None:
    """Write one worker's lines of a whole run; full-precision floats as the writer has them."""
    source = random.Random(rank)
    with open(path, "w", encoding="utf-8") as file:
        log = LogWriter(run, rank, None, file) if token else _FileOnly(run, rank, file)
        log.event("ecg_run", identity(world, steps))
        line = template(run, rank, token)
        for start in range(1, steps + 1, BLOCK):
            values: list[object] = []
            for step in range(start, min(start + BLOCK, steps + 1)):
                x = source.random()
                values += (step, 0.1 + x / 1e3, x / 1e5, 4 + x, 4 + x / 2, 1 + x, x / 1e4, x / 1e3, step)
            file.write(line * (len(values) // 9) % tuple(values))
        log.event("run_stop", None, status="success")


def make(folder: Path, lines: int, shape: str) -> int:
    """Write the runs of a case; return their bytes."""
    runs, world = (1, 1) if shape == "log" else (4, 2)
    steps = lines // (1 if shape == "log" else runs * (world + 1))
    for number in range(runs):
        run = f"pretrain_made_small_ddp_n1_g{world}_strong_r{number + 1}_20260101T000000-00000{number}"
        at = folder / "runs" / run
        at.mkdir(parents=True)
        fill(at / "log", run, 0, world, steps, token=True)
        for rank in range(world) if shape == "workers" else ():
            fill(at / f"rank{rank}.jsonl", run, rank, world, steps, token=False)
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def processes(root: int) -> list[int]:
    """Return a process and all its descendants."""
    out, left = [], [root]
    while left:
        pid = left.pop()
        out.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                left.extend(map(int, (task / "children").read_text().split()))
    return out


def resident(pids: list[int]) -> int:
    """Return the bytes that the processes hold together; pages that they share count for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def run_report(folder: Path, jobs: int | None) -> tuple[float, float, int]:
    """Run the command once; return seconds, CPU seconds of all its processes and the peak of their memory in
    bytes.
    """
    command = [sys.executable, "-m", "analysis", "report", "--results", str(folder)]
    command += ["--jobs", str(jobs)] if jobs else []
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
    begun, used = time.perf_counter(), cpu_of_children()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident(processes(process.pid)))
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        if process.returncode:
            raise SystemExit(f"error: the report failed: {process.stderr.read().decode().strip()}")
    return seconds, cpu_of_children() - used, peak


def cpu_of_children() -> float:
    """Return the CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def yardsticks(folder: Path) -> tuple[float, float]:
    """Return MB/s of reading the log's bytes and of json.loads on its first lines."""
    log = next(folder.glob("runs/*/log"))
    begun = time.perf_counter()
    with open(log, "rb", buffering=0) as file:
        size = sum(len(part) for part in iter(lambda: file.read(1 << 21), b""))
    reading = size / (time.perf_counter() - begun) / 1e6
    with open(log, "rb") as file:
        lines = [text[len(TOKEN) :] for text in islice(file, 20000)]
    begun = time.perf_counter()
    for line in lines:
        json.loads(line)
    return reading, sum(map(len, lines)) / (time.perf_counter() - begun) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lines", type=int, help="step lines of one `log` case instead of 1 and 10 million")
    parser.add_argument("--shape", choices=["log", "workers"], default="log", help="with --lines")
    parser.add_argument("--repeat", type=int, default=3, help="times each case is read; the median counts")
    parser.add_argument("--jobs", type=int, help="processes of the report (not given: its own default)")
    parser.add_argument("--out", type=Path, help="also write the table as CSV to this file")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the logs are made")
    args = parser.parse_args()
    if args.repeat < 1 or (args.lines is not None and args.lines < 30000):
        parser.error("--repeat must be at least 1 and --lines at least 30000")
    cases = [(args.lines, args.shape)] if args.lines else CASES
    needed = max(lines for lines, _ in cases) * BYTES_PER_LINE * 2.2  # the log, spill files and steps.csv
    free = shutil.disk_usage(args.folder).free
    if free < needed:
        parser.error(
            f"{args.folder} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} are needed: give --folder or --lines"
        )
    rows = []
    for lines, shape in cases:
        with tempfile.TemporaryDirectory(prefix="bench-report-", dir=args.folder) as name:
            size = make(Path(name), lines, shape)
            results = [run_report(Path(name), args.jobs) for _ in range(args.repeat)]
            reading, loads = yardsticks(Path(name))
        seconds, cpu = (statistics.median(r[i] for r in results) for i in (0, 1))
        rate = size / seconds / 1e6
        row = {"lines": lines, "shape": shape, "MB": size / 1e6, "bytes_per_line": size / lines, "seconds": seconds}
        row |= {"MB_per_s": rate, "limit": LIMIT, "met": "yes" if rate >= LIMIT else "no"}
        row |= {"cpu_seconds": cpu, "MB_per_cpu_s": size / cpu / 1e6}
        row |= {"peak_MiB": max(p for *_, p in results) / 2**20, "read_MB_per_s": reading, "json_loads_MB_per_s": loads}
        rows.append(row | {"times_json_loads": rate / loads, "cores": len(os.sched_getaffinity(0))})
    print(tabulate(rows, headers="keys", floatfmt=".1f"))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with open(args.out, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
