"""From converted records to a published shard set: order, splits, shards, manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from data_prep import work
from data_prep.record import Settings
from data_prep.splits import SPLITS
from ecg_train import tokens

FORMAT, VERSION = "ecg-train-shards", 1
SHARD_TOKENS = 1 << 26  # 128 MiB: few files for a large set, and still many for parallel work
STAGE = "stage"


def build(dataset, synthetic, items, entries, rule, settings: Settings, folder: Path, jobs: int, shard_tokens: int):
    """Write the shards to folder/stage and return the manifest; None where no record was converted."""
    records, skipped, wheres = [], [], []
    for item, entry in zip(items, entries, strict=True):
        source = item.record + ".hea"
        if "skip" in entry:
            reason, detail = entry["skip"]
            skipped.append({"record": item.record, "source": source, "reason": reason, "detail": _ascii(detail)})
            continue
        patient = rule.patient(item.record, item.first_file)
        records.append({"record": item.record, "source": source, "patient": patient, "split": "", **entry["facts"]})
        labels = rule.labels(item.record)
        if labels:
            records[-1]["labels"] = {**records[-1].get("labels", {}), **labels}
        crc = entry["crc"] if entry.get("kept") else None
        wheres.append((folder / entry["spool"], entry["at"], entry["facts"]["tokens"], crc))
    if not records:
        return None
    split_of = rule.assign({r["patient"] for r in records})
    shards: list[dict] = []
    pieces: list[list] = []
    for split in SPLITS:
        current = None
        for record, where in zip(records, wheres, strict=True):
            if split_of[record["patient"]] != split:
                continue
            if current is None or current["tokens"] + record["tokens"] > shard_tokens:
                number = sum(s["split"] == split for s in shards)
                current = {"split": split, "file": f"{split}-{number:05d}.bin", "tokens": 0}
                shards.append(current)
                pieces.append([])
            record |= {"split": split, "shard": current["file"], "start": current["tokens"]}
            current["tokens"] += record["tokens"]
            pieces[-1].append(where)
    counts = _join(shards, pieces, folder, jobs)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": dataset,
        "synthetic": synthetic,
        "tokenizer": tokens.describe() | {"rate_hz": float(settings.rate)},
        "splits": {name: _split(name, shards, counts) for name in SPLITS},
        "records": records,
        "skipped": skipped,
        "parameters": settings.describe()
        | {"shard_tokens": shard_tokens, "split": rule.rule, "split_exceptions": list(rule.exceptions)},
    }
    return manifest | {"digest": digest(manifest)}


def _join(shards: list[dict], pieces: list[list], folder: Path, jobs: int) -> list[np.ndarray]:
    """Write all shards, several at once; add each one's SHA-256 to its entry and return the histograms."""
    stage = folder / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    order = sorted(range(len(shards)), key=lambda i: -shards[i]["tokens"])
    counts: list = [None] * len(shards)
    # Threads: copying and hashing let go of the interpreter, and a second pool would take longer to start.
    with ThreadPoolExecutor(jobs) as threads:
        joined = [threads.submit(work.join, stage / shards[i]["file"], pieces[i]) for i in order]
        try:
            for i, future in zip(order, joined, strict=True):
                shards[i]["sha256"], counts[i] = future.result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return counts


def _split(name: str, shards: list[dict], counts: list) -> dict:
    mine = [i for i, s in enumerate(shards) if s["split"] == name]
    histogram = np.sum([counts[i] for i in mine], axis=0, dtype=np.int64) if mine else np.zeros(tokens.VOCAB_SIZE, int)
    entropy = tokens.entropy(histogram)
    return {
        "tokens": sum(shards[i]["tokens"] for i in mine),
        "shards": [{k: shards[i][k] for k in ("file", "tokens", "sha256")} for i in mine],
        "unigram_entropy": None if entropy is None else float(f"{entropy:.12g}"),
        "histogram": histogram.tolist(),
    }


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _dump(value: object, sort_keys: bool = False) -> str:
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"))


def digest(manifest: dict) -> str:
    """Return "sha256:<hex>" of the manifest's canonical JSON (sorted keys, no blanks, ASCII) without its digest."""
    text = _dump({k: v for k, v in manifest.items() if k != "digest"}, sort_keys=True)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def text(manifest: dict) -> str:
    """Write the manifest with a line per key and per record, so that people and diff can read it."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, list) and value:
            body = "[\n  " + ",\n  ".join(_dump(v) for v in value) + "\n ]"
        else:
            body = _dump(value)
        lines.append(f" {_dump(key)}: {body}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def publish(manifest: dict, folder: Path, scratch: Path) -> None:
    """Move the shards from scratch/stage into folder, the manifest last. An older set gives way just before."""
    stage = scratch / STAGE
    new = stage / "manifest.json"
    with open(new, "w", encoding="ascii") as out:
        out.write(text(manifest))
        out.flush()
        os.fsync(out.fileno())
    # From here on nothing needs space. Without a manifest there is no data set, whatever lies in the folder.
    (folder / "manifest.json").unlink(missing_ok=True)
    for split in SPLITS:
        for old in folder.glob(f"{split}-[0-9][0-9][0-9][0-9][0-9].bin"):
            old.unlink()
    for shard in sorted(stage.glob("*.bin")):
        os.replace(shard, folder / shard.name)
    os.replace(new, folder / "manifest.json")
    with contextlib.suppress(OSError):
        flags = os.open(folder, os.O_RDONLY)
        os.fsync(flags)
        os.close(flags)
