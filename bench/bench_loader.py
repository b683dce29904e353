"""Measure how fast windows come out of token shards, beside a plain memory copy in the same process.

    PYTHONPATH=python python bench/bench_loader.py --repeats 15 --out loader.csv

Makes a shard set of random tokens (the page cache holds it: it was just written) and measures in turns:
gather windows in the order of an epoch, then np.copyto of the same number of bytes. Neither reads again what
it has just read, so both start from memory, not from the CPU's caches, as a run does. GB/s count the tokens
delivered, two bytes each, once. The ratio is the median of the ratios of the turns.

    epoch       all windows into an array as large as the shards, beside a copy of the shards into that array
    N rows      N windows at a time into one buffer used again and again, as a run does, beside a copy of as
    many bytes
                into that buffer; with many rows this copy is the faster one, for it never writes to memory
    take        for scale: numpy's bare take of N whole rows of seq_len tokens, without the last token of each
    window.
                Nothing in numpy reads rows at random places faster, so it bounds the rows above
    loader      Loader.next in a tight loop: order, gather, widening to int64 and the hand-over between two
    threads

What keeps the ratio down for many rows: a processor fetches ahead of a copy, but cannot guess where the next
window lies.

The second table says what reading ahead costs a worker that computes: CPU time of the reading thread and the
caller's wait for the batch, per step, as shares of the step.
"""

from __future__ import annotations

import csv
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
from tabulate import tabulate

from ecg_train.loader import Loader
from ecg_train.order import WindowOrder
from ecg_train.shards import FORMAT, VERSION, ShardSet, manifest_digest

TARGET = 0.5  # of the copy's bandwidth
VOCAB = 1024


def make_set(folder: Path, tokens: int, shards: int) -> None:
    """Write a shard set of random tokens, split evenly over the shards."""
    rng = np.random.default_rng(0)
    entries = []
    for number in range(shards):
        part = rng.integers(0, VOCAB, tokens // shards, dtype=np.uint16)
        name = f"train-{number:05d}.bin"
        part.tofile(folder / name)
        digest = hashlib.sha256(part).hexdigest()
        entries.append({"file": name, "tokens": part.size, "sha256": digest})
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": folder.name,
        "synthetic": True,
        "tokenizer": {"name": "amplitude", "vocab_size": VOCAB},
        "splits": {"train": {"tokens": sum(e["tokens"] for e in entries), "shards": entries}},
    }
    manifest["digest"] = manifest_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


class Places:
    """Where to read next: windows in the order of the epoch, or tokens from front to back; both start again
    at the end."""

    def __init__(self, shards: ShardSet) -> None:
        self.windows = WindowOrder(shards.n_windows, seed=1).positions(0, 0, shards.n_windows)
        self.tokens = np.memmap(next(shards.folder.glob("train-*.bin")), np.uint16, "r")
        self.window = self.token = 0

    def next_windows(self, rows: int) -> np.ndarray:
        if self.window + rows > self.windows.size:
            self.window = 0
        self.window += rows
        return self.windows[self.window - rows : self.window]

    def next_tokens(self, count: int) -> np.ndarray:
        if self.token + count > self.tokens.size:
            self.token = 0
        self.token += count
        return self.tokens[self.token - count : self.token]


def timed(work: Callable[[], None]) -> float:
    """Return the CPU seconds of this process, all threads, that one call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def turns(name: str, size: int, repeats: int, ours: Callable[[], None], copy: Callable[[], None]) -> dict:
    """Measure two ways to deliver ``size`` bytes in turns, after one unmeasured turn each; return a row."""
    pairs = [(timed(ours), timed(copy)) for _ in range(repeats + 1)][1:]
    mine, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(copied / gathered for gathered, copied in pairs)
    spread = statistics.quantiles([copied / gathered for gathered, copied in pairs], n=4)
    return {
        "row": name,
        "megabytes": size / 1e6,
        "gb_per_s": size / mine / 1e9,
        "copy_gb_per_s": size / theirs / 1e9,
        "ratio": ratio,
        "ratio_q1": spread[0],
        "ratio_q3": spread[2],
    }


def rows_of(shards: ShardSet, rows: int, repeats: int) -> Iterator[dict]:
    """Measure batches of ``rows`` windows; a turn is as many batches as make 4 MB, so that the clock is not
    measured."""
    places, width = Places(shards), shards.seq_len + 1
    out = np.empty((rows, width), np.uint16)
    bare = np.empty((rows, shards.seq_len), np.uint16)
    whole = places.tokens[: shards.n_windows * shards.seq_len].reshape(shards.n_windows, shards.seq_len)
    whole = np.asarray(whole)
    batches = max(1, 4_000_000 // out.nbytes)

    def gather() -> None:
        for _ in range(batches):
            shards.gather(places.next_windows(rows), out)

    def take() -> None:
        for _ in range(batches):
            whole.take(places.next_windows(rows), axis=0, out=bare, mode="clip")

    def copy() -> None:
        for _ in range(batches):
            np.copyto(out.reshape(-1), places.next_tokens(out.size))

    yield turns(f"{rows} rows", batches * out.nbytes, repeats, gather, copy)
    if rows > 1:
        yield turns(f"take {rows} rows", batches * bare.nbytes, repeats, take, copy)


def epoch(shards: ShardSet, repeats: int, rows: int = 4096) -> dict:
    """Measure all windows of an epoch into one array, beside a copy of that many bytes."""
    places, width = Places(shards), shards.seq_len + 1
    count = min(shards.n_windows // rows * rows or shards.n_windows, places.tokens.size // width)
    out = np.zeros((count, width), np.uint16)  # zeros written here: both fill pages that exist
    out[...] = 1

    def gather() -> None:
        for start in range(0, count, rows):
            part = out[start : start + rows]
            shards.gather(places.windows[start : start + len(part)], part)

    def copy() -> None:
        np.copyto(out.reshape(-1), places.tokens[: out.size])

    return turns("epoch", out.nbytes, repeats, gather, copy)


def loader_rate(shards: ShardSet, batch: int, repeats: int) -> dict:
    """Measure Loader.next without any computing, beside a copy of as many token bytes."""
    places = Places(shards)
    out = np.empty(batch * (shards.seq_len + 1), np.uint16)
    steps = max(20, 2_000_000 // out.nbytes)
    with Loader(shards, WindowOrder(shards.n_windows, 2), batch, 0, 1) as loader:

        def read() -> None:
            for _ in range(steps):
                loader.next()

        def copy() -> None:
            for _ in range(steps):
                np.copyto(out, places.next_tokens(out.size))

        return turns(f"loader {batch} rows", steps * out.nbytes, repeats, read, copy)


def cost(shards: ShardSet, batch: int, step: float, steps: int) -> dict:
    """Let the caller compute for ``step`` seconds between batches; return what the loader takes of that."""
    work = np.zeros(1 << 18, np.float32)
    waits, busy = [], []
    with Loader(shards, WindowOrder(shards.n_windows, 3), batch, 0, 1) as loader:
        for _ in range(steps):
            others = time.process_time() - time.thread_time()
            until = time.perf_counter() + step
            waits.append(loader.next()[1])
            while time.perf_counter() < until:
                np.tanh(work, out=work)  # lets go of the interpreter lock, as a framework's operators do
            busy.append(time.process_time() - time.thread_time() - others)
    return {
        "batch": batch,
        "step_ms": step * 1e3,
        "thread_cpu_us": statistics.mean(busy[1:]) * 1e6,
        "thread_share": statistics.mean(busy[1:]) / step,
        "wait_us": statistics.median(waits) * 1e6,
        "wait_share": statistics.mean(waits[1:]) / step,
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repeats", type=click.IntRange(2), default=15, show_default=True, help="Turns per row.")
@click.option("--tokens", type=click.IntRange(100_000), default=1 << 26, show_default=True, help="Size of the shard.")
@click.option("--seq-len", type=click.IntRange(1), default=256, show_default=True, help="Tokens of a window, less one.")
@click.option("--rows", default="16,64,256,4096", show_default=True, help="Windows per batch, one or more numbers.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="CSV file to write the first table to.")
def main(repeats: int, tokens: int, seq_len: int, rows: str, out: Path | None) -> None:
    """Compare gathering windows out of token shards with a plain memory copy."""
    try:
        sizes = [int(size) for size in rows.split(",")]
    except ValueError:
        raise click.BadParameter(f"{rows!r} is no list of numbers such as 16,256", param_hint="--rows") from None
    with tempfile.TemporaryDirectory(prefix="ecg-bench-") as scratch:
        folder = Path(scratch) / "random"
        folder.mkdir()
        make_set(folder, tokens, 1)
        shards = ShardSet.open(folder, "train", seq_len, verify=True)  # verify: every page has been touched
        if not all(0 < size <= shards.n_windows for size in sizes):
            raise click.BadParameter(f"wanted 1 to {shards.n_windows} windows", param_hint="--rows")
        table = [epoch(shards, max(2, repeats // 3))]
        for size in sizes:
            table += rows_of(shards, size, repeats)
        table += [loader_rate(shards, size, repeats) for size in sizes]
        costs = [cost(shards, 16, 0.05, 20), cost(shards, 256, 0.05, 20)]
    for row in table:
        judged = row["row"].split()[0] not in ("take", "loader")
        row["target"] = TARGET if judged else None
        row["met"] = ("yes" if row["ratio"] >= TARGET else "no") if judged else None
    shape = f"{tokens * 2 / 1e6:.0f} MB of tokens in the page cache, windows of {seq_len + 1} tokens"
    click.echo(f"Loader beside a plain memory copy: {shape}, medians of {repeats} turns\n")
    click.echo(tabulate(table, headers="keys", tablefmt="simple", floatfmt=".2f"))
    click.echo("\nWhat reading ahead takes from a worker that computes (target: wait below 0.005 of a step)\n")
    click.echo(tabulate(costs, headers="keys", tablefmt="simple", floatfmt=("d", ".0f", ".0f", ".5f", ".1f", ".5f")))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()
