"""A small example set whose classes can be learnt: sines at three heights, which overlap."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from ecg_train.shards import manifest_digest
from ecg_train.tasks import Task

SEQ = 32
SIZES = {"train": 240, "val": 32, "test": 50}


def task(multilabel: bool = False, per_group: bool = False) -> Task:
    return Task("heights", ("low", "middle", "high"), multilabel, SEQ, (120, 80, 40), 240, per_group)


def write_examples(folder: Path, multilabel: bool = False, per_group: bool = False, seed: int = 0) -> Path:
    """Write an example set; the class is the height of the sine, the first three times as frequent as the last."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    described = task(multilabel, per_group)
    splits = {}
    for split, count in SIZES.items():
        rows = []
        for number in range(count):
            label = int(random.choice(3, p=(0.5, 0.33, 0.17)))
            phase = random.uniform(0, 6)
            wave = (470, 480, 490)[label] + 6 * np.sin(np.arange(SEQ) / 3 + phase) + random.normal(0, 2, SEQ)
            labels = [label] if not multilabel or label == 0 else [0, label]
            rows.append(described.row(wave.astype(np.uint16), number // 5, labels))
        tokens = np.concatenate(rows).astype("<u2")
        name = f"{split}-00000.bin"
        tokens.tofile(folder / name)
        digest = hashlib.sha256(tokens.tobytes()).hexdigest()
        splits[split] = {"tokens": tokens.size, "shards": [{"file": name, "tokens": tokens.size, "sha256": digest}]}
    manifest = {
        "format": "ecg-train-shards", "version": 1, "dataset": folder.name, "synthetic": True,
        "tokenizer": {"name": "amplitude", "vocab_size": 1024, "reserved": 64, "bins": 960},
        "task": {
            "name": "heights", "classes": list(described.classes), "multilabel": multilabel, "seq_len": SEQ,
            "per_group": per_group, "counts": list(described.counts), "examples": described.examples,
        },
        "splits": splits, "records": [], "skipped": [], "parameters": {},
    }  # fmt: skip
    manifest["digest"] = manifest_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
