"""A maker of small shard sets, for the tests of this folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ecg_train.shards import FORMAT, VERSION, manifest_digest


def write_set(folder: Path, sizes: tuple[int, ...], split: str = "train", vocab: int = 1024) -> list[np.ndarray]:
    """Write a shard set whose tokens count up (modulo the vocabulary), so that a wrong place shows; return
    the shards."""
    folder.mkdir(parents=True)
    shards, entries, first = [], [], 0
    for number, size in enumerate(sizes):
        tokens = (np.arange(first, first + size) % vocab).astype("<u2")
        first += size
        name = f"{split}-{number:05d}.bin"
        (folder / name).write_bytes(tokens.tobytes())
        entries.append({"file": name, "tokens": size, "sha256": hashlib.sha256(tokens.tobytes()).hexdigest()})
        shards.append(tokens)
    splits = {split: {"tokens": first, "shards": entries, "unigram_entropy": 1.5}}
    splits["empty"] = {"tokens": 0, "shards": [], "unigram_entropy": None}
    write_manifest(
        folder,
        {
            "format": FORMAT,
            "version": VERSION,
            "dataset": folder.name,
            "synthetic": False,
            "tokenizer": {"name": "amplitude", "vocab_size": vocab},
            "splits": splits,
            "records": [],
            "skipped": [],
        },
    )
    return shards


def write_manifest(folder: Path, manifest: dict) -> None:
    manifest["digest"] = manifest_digest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def change_manifest(tmp_path) -> Callable:
    """Change the manifest of the set "toy" by a function and write it back with a digest that fits."""

    def change(edit: Callable[[dict], None]) -> None:
        folder = tmp_path / "data" / "toy"
        manifest = json.loads((folder / "manifest.json").read_text())
        edit(manifest)
        write_manifest(folder, manifest)

    return change


@pytest.fixture
def make_set(tmp_path) -> Callable:
    """Write the set "toy" with shards of the given sizes; return its folder and its shards."""

    def make(*sizes: int, **settings) -> tuple[Path, list[np.ndarray]]:
        folder = tmp_path / "data" / "toy"
        return folder, write_set(folder, sizes, **settings)

    return make
