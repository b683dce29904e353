"""Mix shard sets: one set that draws training windows from several, by weight.

The shards are hard links (copies where the file system has none), so that a mixture costs no space and stays whole when
a member is made anew. What is mixed is the order, see ``ecg_train.order.MixtureOrder``.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from pathlib import Path

import click
import numpy as np

from data_prep import assemble
from data_prep.errors import WorkError
from data_prep.splits import SPLITS
from ecg_train import tokens
from ecg_train.errors import UserError
from ecg_train.shards import dataset_folder, read_manifest

PARTS = 1000
"""Largest weight, and what weights by size add up to."""


def mix(name: str, members: list[str], weights: list[int] | None, out: Path) -> dict:
    """Write the mixture ``out/name`` of the sets ``out/<member>``; return its manifest.

    ``weights``: of the windows that are trained on, member i gives weights[i] in sum(weights); None: in proportion to
    its training tokens. Raises UserError for sets that do not go together, WorkError where writing fails.
    """
    target = dataset_folder(out, name)
    if len(members) < 2 or len(set(members)) < len(members):
        raise UserError(f"a mixture has two or more different data sets, got {' '.join(members) or 'none'}")
    if name in members:
        raise UserError(f"the mixture {name!r} would replace one of its own members; give it another name")
    if (target / "manifest.json").exists() and not read_manifest(target).get("mixture"):
        raise UserError(f"{target} is a data set, not a mixture; give the mixture another name")
    manifests = {member: read_manifest(dataset_folder(out, member)) for member in members}
    _check(manifests)
    trained = [int(m["splits"]["train"]["tokens"]) for m in manifests.values()]
    weights = weights or _by_size(trained)
    if len(weights) != len(members) or not all(1 <= w <= PARTS for w in weights):
        raise UserError(
            f"weights {' '.join(map(str, weights))}: wanted {len(members)} whole numbers from 1 to {PARTS},"
            f" one for each of {' '.join(members)}"
        )
    common = math.gcd(*weights)
    weights = [w // common for w in weights]
    scratch = target / ".work"
    try:
        stage = scratch / assemble.STAGE
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        manifest = _write(name, manifests, weights, out, stage)
        assemble.publish(manifest, target, scratch)
    except OSError as error:
        raise WorkError(f"writing to {target} failed: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):
            target.rmdir()  # only when it is empty: nothing stays of a request that failed
    return manifest


def _check(manifests: dict[str, dict]) -> None:
    first, tokenizer = next((name, m["tokenizer"]) for name, m in manifests.items())
    for name, manifest in manifests.items():
        if manifest.get("task"):
            raise UserError(f"{name!r} is a set of labelled examples; only sets for pretraining can be mixed")
        if manifest.get("mixture"):
            raise UserError(f"{name!r} is a mixture itself; name its members instead")
        if manifest["tokenizer"] != tokenizer:
            differs = sorted(
                k for k in tokenizer | manifest["tokenizer"] if tokenizer.get(k) != manifest["tokenizer"].get(k)
            )
            raise UserError(f"{name!r} and {first!r} do not have the same tokens ({', '.join(differs)} differ)")
        if not manifest["splits"]["train"]["tokens"]:
            raise UserError(f"{name!r} has no training tokens")


def _by_size(sizes: list[int]) -> list[int]:
    return [max(1, round(PARTS * size / sum(sizes))) for size in sizes]


def _write(name: str, manifests: dict[str, dict], weights: list[int], out: Path, stage: Path) -> dict:
    """Link the shards into ``stage``; return the manifest."""
    splits: dict[str, dict] = {}
    new_names: dict[tuple[str, str], str] = {}
    held: dict[str, dict[str, int]] = {member: {} for member in manifests}
    for split in SPLITS:
        shards = []
        for member, manifest in manifests.items():
            theirs = manifest["splits"].get(split, {"shards": []})["shards"]
            held[member][split] = len(theirs)
            for shard in theirs:
                file = f"{split}-{len(shards):05d}.bin"
                _link(dataset_folder(out, member) / shard["file"], stage / file)
                new_names[member, shard["file"]] = file
                shards.append(shard | {"file": file})
        histograms = [np.array(m["splits"][split]["histogram"], float) for m in manifests.values()]
        # Training draws by weight, whatever the sizes; validation and test read the windows as they are.
        total = (
            sum(w * h / max(h.sum(), 1) for w, h in zip(weights, histograms, strict=True)) / sum(weights)
            if split == "train"
            else sum(histograms)
        )
        entropy = tokens.entropy(total)
        splits[split] = {
            "tokens": sum(s["tokens"] for s in shards),
            "shards": shards,
            "unigram_entropy": None if entropy is None else float(f"{entropy:.12g}"),
            "histogram": sum(histograms).astype(np.int64).tolist(),
        }
    records, skipped = [], []
    for member, manifest in manifests.items():
        for kind, found in (("records", records), ("skipped", skipped)):
            for record in manifest[kind]:
                moved = {"record": f"{member}/{record['record']}", "source": f"{member}/{record['source']}"}
                if kind == "records":  # a patient of one archive is not the patient of that number in another
                    moved |= {"patient": f"{member}/{record['patient']}", "shard": new_names[member, record["shard"]]}
                found.append(record | moved)
    mixture = [
        {"dataset": member, "digest": manifest["digest"], "weight": weight, "shards": held[member]}
        for (member, manifest), weight in zip(manifests.items(), weights, strict=True)
    ]
    manifest = {
        "format": assemble.FORMAT,
        "version": assemble.VERSION,
        "dataset": name,
        "synthetic": any(m.get("synthetic") is True for m in manifests.values()),
        "tokenizer": next(iter(manifests.values()))["tokenizer"],
        "mixture": mixture,
        "splits": splits,
        "records": records,
        "skipped": skipped,
        "parameters": {},
    }
    return manifest | {"digest": assemble.digest(manifest)}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@click.command()
@click.option("--name", required=True, help="Name of the mixture.")
@click.option("--member", "members", multiple=True, required=True, help="A shard set of OUT; give two or more.")
@click.option("--weight", "weights", multiple=True, type=int, help="Parts of each member.  [default: by its size]")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Data folder.")
def command(name: str, members: tuple[str, ...], weights: tuple[int, ...], out: Path) -> None:
    """Make the shard set OUT/NAME that draws its training windows from several others, by weight."""
    manifest = mix(name, list(members), list(weights) or None, out)
    parts = sum(m["weight"] for m in manifest["mixture"])
    shares = ", ".join(f"{m['dataset']} {m['weight'] / parts:.1%}" for m in manifest["mixture"])
    click.echo(f"{name}: a mixture of {shares} of the training windows")
