"""Cut labelled examples out of a shard set: what fine-tuning trains on and is tested with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import click
import numpy as np

from data_prep import assemble
from data_prep.errors import WorkError
from data_prep.labels import FEWEST_RECORDS, TASKS
from data_prep.splits import SPLITS
from ecg_train.errors import UserError
from ecg_train.shards import ShardSet, dataset_folder, read_manifest
from ecg_train.tasks import Task


def make(dataset: str, task_name: str, src: Path, out: Path, seq_len: int = 256, fewest: int = FEWEST_RECORDS) -> dict:
    """Write the example set out/<dataset>-<task> of the shard set out/<dataset>; return its manifest.

    ``src`` holds the recordings and their annotations. The splits are those of the shard set. Raises UserError where
    something is missing, WorkError where writing fails.
    """
    folder = dataset_folder(out, dataset)
    manifest = read_manifest(folder)
    if manifest["tokenizer"]["name"] != "amplitude":
        raise UserError(
            f"{dataset!r} has tokenizer {manifest['tokenizer']['name']!r}; examples are cut from 'amplitude' tokens"
        )
    if manifest.get("task"):
        raise UserError(f"{dataset!r} is an example set itself; name the set that it was cut from")
    if not src.is_dir():
        raise UserError(f"SRC={src} is not a folder; give the one that holds the recordings of {dataset!r}")
    labeller = TASKS[task_name](manifest, src, fewest)
    target = dataset_folder(out, f"{dataset}-{task_name}")
    work = target / ".work"
    try:
        stage = work / assemble.STAGE
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        whole = _write(manifest, folder, labeller, seq_len, stage, target.name)
        assemble.publish(whole, target, work)
    except OSError as error:
        raise WorkError(f"writing to {target} failed: {error.strerror or error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            target.rmdir()  # only when it is empty: nothing stays of a request that failed
    return whole


def _write(manifest: dict, folder: Path, labeller, seq_len: int, stage: Path, name: str) -> dict:
    """Write one shard per split into ``stage``; return the manifest."""
    task = Task(labeller.name, tuple(labeller.classes), labeller.multilabel, seq_len, (), 0, labeller.per_group)
    maps: dict[str, np.ndarray] = {}
    splits, records, examples, counts = {}, [], {}, {}
    for split in SPLITS:
        path = stage / f"{split}-00000.bin"
        digest, rows = hashlib.sha256(), 0
        held = np.zeros(len(task.classes), np.int64)
        with path.open("wb") as file:
            for group, record in enumerate(manifest["records"]):
                if record["split"] != split:
                    continue
                block = _rows(task, labeller, record, _stream(folder, record, maps), group)
                if block is None:
                    continue
                file.write(block.tobytes())
                digest.update(block.tobytes())
                here = _count(task, block)
                rows, held = rows + len(block), held + here
                records.append({"record": record["record"], "patient": record["patient"], "split": split,
                                "group": group, "examples": len(block)})  # fmt: skip
            file.flush()
            os.fsync(file.fileno())
        shards = [{"file": path.name, "tokens": rows * task.width, "sha256": digest.hexdigest()}] if rows else []
        if not rows:
            path.unlink()
        splits[split] = {"tokens": rows * task.width, "shards": shards, "unigram_entropy": None}
        examples[split], counts[split] = rows, held.tolist()
    if not examples["train"] or not examples["test"]:
        raise UserError(
            f"no {'training' if not examples['train'] else 'test'} example of task {task.name!r} in "
            f"{manifest['dataset']!r}: its records carry no such labels"
        )
    whole = {
        "format": assemble.FORMAT,
        "version": assemble.VERSION,
        "dataset": name,
        "synthetic": manifest.get("synthetic") is True,
        "tokenizer": manifest["tokenizer"],
        "task": {
            "name": task.name, "classes": list(task.classes), "multilabel": task.multilabel, "seq_len": seq_len,
            "per_group": task.per_group, "counts": counts["train"], "examples": examples["train"],
        },
        "counts": counts,
        "splits": splits,
        "records": records,
        "skipped": [],
        "parameters": {"from": manifest["dataset"], "from_digest": manifest["digest"]}
        | {key: manifest["parameters"][key] for key in ("split", "split_exceptions") if key in manifest["parameters"]},
    }  # fmt: skip
    return whole | {"digest": assemble.digest(whole)}


def _stream(folder: Path, record: dict, maps: dict[str, np.ndarray]) -> np.ndarray:
    name = record["shard"]
    if name not in maps:
        maps[name] = ShardSet._map(folder, name, (folder / name).stat().st_size // 2, "", None)
    return maps[name][record["start"] : record["start"] + record["tokens"]]


def _rows(task: Task, labeller, record: dict, stream: np.ndarray, group: int) -> np.ndarray | None:
    rows = [task.row(part, group, labels) for part, labels in labeller.stretches(record, stream, task.seq_len)]
    return np.stack(rows).astype("<u2") if rows else None


def _count(task: Task, block: np.ndarray) -> np.ndarray:
    targets = task.targets(block)
    return (
        targets.sum(axis=0).astype(np.int64) if task.multilabel else np.bincount(targets, minlength=len(task.classes))
    )


@click.command()
@click.option("--dataset", required=True, help="Name of the shard set to cut from.")
@click.option("--task", type=click.Choice(list(TASKS)), required=True, help="What is to be told apart.")
@click.option("--src", required=True, type=click.Path(path_type=Path), help="Folder of the recordings.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Data folder; makes OUT/DATASET-TASK.")
@click.option("--seq-len", type=click.IntRange(8, 65000), default=256, show_default=True, help="Tokens of an example.")
@click.option(
    "--min-records",
    type=click.IntRange(1),
    default=FEWEST_RECORDS,
    show_default=True,
    help="snomed: a code that fewer training records carry is no class.",
)
def command(dataset: str, task: str, src: Path, out: Path, seq_len: int, min_records: int) -> None:
    """Cut labelled examples for fine-tuning out of the shard set OUT/DATASET.

    beats: MIT-BIH and other sets with .atr annotations, AAMI classes N S V F Q. superclasses: PTB-XL. snomed: the
    sets of the PhysioNet/CinC challenges.
    """
    manifest = make(dataset, task, src, out, seq_len, min_records)
    entry = manifest["task"]
    click.echo(f"{manifest['dataset']}: {len(manifest['records'])} recordings, {len(entry['classes'])} classes")
    for split, held in manifest["counts"].items():
        text = ", ".join(f"{name} {n}" for name, n in zip(entry["classes"], held, strict=True))
        total = manifest["splits"][split]["tokens"] // Task.of(manifest).width
        click.echo(f"  {split}: {total} examples ({text})")
