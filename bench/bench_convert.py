"""Measure the conversion of recordings beside reading the same recordings with bare wfdb.rdrecord.

    PYTHONPATH=python:. python bench/bench_convert.py --src $ECG_RAW/mitdb --repeats 7 --out convert.csv

Both use the same cores, as many processes as there are cores, and take turns; the ratio is the median of the
ratios of the turns. Two rows:

    command     whole processes, from start to end: python -m data_prep convert, and a script that imports wfdb
                and maps rdrecord over a pool
    work        without the start of Python and the imports: what counts for large archives. The reading comes from
                the same kind of pool, started when the clock runs

Converting also resamples, writes twice, computes SHA-256 and a histogram; it can still be as fast as reading,
for it asks wfdb for digital samples, and applies the gain to the quarter of the samples that is left.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from tabulate import tabulate

LIMIT = 1.5
ROOT = Path(__file__).resolve().parents[1]

READ = """
import multiprocessing, sys, time, warnings
warnings.simplefilter("ignore")
import wfdb
def read(name):
    wfdb.rdrecord(name)
start = time.perf_counter()
with multiprocessing.get_context("fork").Pool(int(sys.argv[1])) as pool:
    pool.map(read, sys.argv[2:], 1)
print(time.perf_counter() - start)
"""

CONVERT = """
import sys, time, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import wfdb
from data_prep.convert import convert
start = time.perf_counter()
convert("bench", Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[1]))
print(time.perf_counter() - start)
"""


def run(command: list[str]) -> tuple[float, str]:
    """Return (wall seconds, standard output) of a command; raise CalledProcessError where it fails."""
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    env = {**os.environ, **threads, "PYTHONPATH": path}
    start = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def turn(src: Path, names: list[str], jobs: int) -> dict[str, tuple[float, float]]:
    """Return row -> (seconds of converting, seconds of reading) of one turn."""
    python, n = sys.executable, str(jobs)
    read = [python, "-c", READ, n, *names]
    with tempfile.TemporaryDirectory() as out:
        command = ["-m", "data_prep", "convert", "--dataset", "bench", "--src", str(src), "--out", out, "--jobs", n]
        whole = run([python, *command])[0], run(read)[0]
    with tempfile.TemporaryDirectory() as out:
        work = float(run([python, "-c", CONVERT, n, str(src), out])[1]), float(run(read)[1])
    return {"command": whole, "work": work}


def rows_of(turns: list[dict], megabytes: float, records: int, jobs: int) -> list[dict]:
    rows = []
    for name in turns[0]:
        pairs = [t[name] for t in turns]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(a / b for a, b in pairs)
        rows.append(
            {
                "row": name,
                "records": records,
                "jobs": jobs,
                "convert_s": ours,
                "rdrecord_s": theirs,
                "ratio": statistics.median(ratios),
                "ratio_min": ratios[0],
                "ratio_max": ratios[-1],
                "limit": LIMIT,
                "convert_mb_per_s": megabytes / ours,
                "repeats": len(pairs),
            }
        )
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--src", type=click.Path(path_type=Path), help="Folder of WFDB records.  [default: $ECG_RAW/mitdb]")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1), help="Turns.")
@click.option("--jobs", type=click.IntRange(1), help="Processes.  [default: all cores]")
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write.")
def main(src: Path | None, repeats: int, jobs: int | None, out: Path | None) -> None:
    """Time the conversion beside bare reading, in turns. Exit status 1 where the limit is not kept."""
    if src is None and not os.environ.get("ECG_RAW"):
        click.echo("no recordings: ECG_RAW is not set and no --src given; nothing measured", err=True)
        return
    src = src or Path(os.environ["ECG_RAW"]) / "mitdb"
    headers = sorted(src.glob("*.hea"))
    if not headers:
        raise click.UsageError(f"{src} holds no WFDB header (*.hea)")
    jobs = jobs or len(os.sched_getaffinity(0))
    names = [str(h)[: -len(".hea")] for h in headers]
    megabytes = sum(f.stat().st_size for f in src.iterdir() if f.is_file()) / 1e6
    turn(src, names, jobs)  # fills the page cache, and the cache of compiled modules
    rows = rows_of([turn(src, names, jobs) for _ in range(repeats)], megabytes, len(names), jobs)
    click.echo(tabulate(rows, headers="keys", tablefmt="github", floatfmt=".3f"))
    if out:
        with out.open("w", newline="", encoding="ascii") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    if any(row["ratio"] > LIMIT for row in rows):
        click.echo(f"error: a ratio is above {LIMIT}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
