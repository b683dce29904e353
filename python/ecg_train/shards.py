"""Token shards on disk, opened for reading.

A data set is a folder with ``manifest.json`` and shards of raw little-endian uint16 tokens. A window is
``seq_len + 1`` tokens at stride ``seq_len`` inside one shard, so a shard of ``t`` tokens holds ``(t - 1) //
seq_len`` windows; window numbers run over the shards of a split in manifest order. In an example set (see
``tasks``) the rows stand side by side instead. Shards are memory-mapped: opening reads the manifest only.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from ecg_train.errors import UserError
from ecg_train.order import MixtureOrder, WindowOrder
from ecg_train.tasks import Task

FORMAT = "ecg-train-shards"
VERSION = 1
TOKEN = np.dtype("<u2")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SHARD_FILE = re.compile(r"[a-z][a-z0-9_]*-[0-9]{5,}\.bin")

# Measured with bench/bench_loader.py: below _FEW_ROWS one call beats five that copy faster; _CHUNK_ROWS keeps
# the scratch array of common sequence lengths inside a second-level cache.
_FEW_ROWS = 128
_CHUNK_ROWS = 1024


def dataset_folder(data_dir: Path, name: str) -> Path:
    """Return the folder of a data set by its name; UserError where the text is no data set name."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no data set name: wanted 1 to 64 of a-z 0-9 _ -, the first a letter or a digit"
            f" (e.g. mitdb); {_present(data_dir)}"
        )
    return data_dir / name


def _present(data_dir: Path) -> str:
    """Say which data sets a folder holds."""
    try:
        names = sorted(path.parent.name for path in data_dir.glob("*/manifest.json"))
        names = [name for name in names if NAME.fullmatch(name)]
    except OSError:
        names = []
    return f"{data_dir} holds: {', '.join(names)}" if names else f"{data_dir} holds no data set yet"


def _again(folder: Path) -> str:
    return f"make it anew with: make data DATASET={folder.name}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the manifest of a data set folder.

    Raises UserError where it is missing, unreadable, of another format or version, or lacks a part.
    """
    path = folder / "manifest.json"
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"data set {folder.name!r} is not there (no {path}); {_present(folder.parent)};"
            f" make it with: make data DATASET={folder.name}"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); {_again(folder)}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        seen = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise UserError(f"{path} has format {seen!r}, wanted {FORMAT!r}; {_again(folder)}")
    if manifest.get("version") != VERSION:
        raise UserError(f"{path} has version {manifest.get('version')!r}, wanted {VERSION}; {_again(folder)}")
    return manifest


def manifest_digest(manifest: dict[str, Any]) -> str:
    """Return ``sha256:<hex>`` of the canonical JSON (sorted keys, no spaces, ASCII) without the digest
    itself."""
    rest = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ShardSet:
    """The windows of one split of a data set, memory-mapped.

    Attributes: ``dataset``, ``split``, ``seq_len`` (one less than the numbers of a row), ``n_windows``, ``tokens``
    (in the split), ``digest`` (of the manifest), ``synthetic``, ``unigram_entropy`` (nats, or None where the manifest
    has none), ``vocab_size``, ``task`` (None unless it is an example set), ``members`` (of a mixture: dataset, weight
    and windows of each; empty otherwise).
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        split: str,
        seq_len: int,
        arrays: list,
        task: Task | None = None,
    ) -> None:
        entry = manifest["splits"][split]
        self.task = task
        if task is not None:
            seq_len = task.width - 1
        stride = seq_len if task is None else seq_len + 1
        self.folder, self.dataset, self.split, self.seq_len = folder, str(manifest["dataset"]), split, seq_len
        self.tokens = sum(array.size for array in arrays)
        self.digest = str(manifest["digest"])
        self.synthetic = manifest.get("synthetic") is True
        self.unigram_entropy = entry.get("unigram_entropy")
        self.vocab_size = int(manifest["tokenizer"]["vocab_size"])
        width = seq_len + 1
        # per shard that has a window: its tokens (t,), its body (n, seq_len), its overlapping windows (n,)
        self._shards = []
        counts = []
        self._row = np.dtype((np.void, width * TOKEN.itemsize))  # a window as one opaque element
        for array in arrays:
            count = (array.size - (width - stride)) // stride if array.size else 0
            if count > 0:
                body = array[: count * stride].reshape(count, stride)
                rows = np.ndarray((count,), self._row, buffer=array, strides=(stride * TOKEN.itemsize,))
                self._shards.append((array, body, rows))
                counts.append(count)
        self._ends = np.cumsum(np.array(counts, dtype=np.int64))
        self.n_windows = int(self._ends[-1]) if counts else 0
        self.members = self._mixture(manifest.get("mixture") or [], arrays, width - stride, stride)

    def _mixture(self, mixture: list[dict], arrays: list, overlap: int, stride: int) -> list[tuple[str, int, int]]:
        members, first = [], 0
        for entry in mixture:
            mine = arrays[first : first + int(entry["shards"][self.split])]
            first += len(mine)
            windows = sum(max(0, (array.size - overlap) // stride) for array in mine)
            members.append((str(entry["dataset"]), int(entry["weight"]), windows))
        return members

    def order(self, seed: int) -> WindowOrder | MixtureOrder:
        """Return the order in which training reads the windows; UserError where a mixture's member has none."""
        if not self.members:
            return WindowOrder(self.n_windows, seed)
        for name, _, windows in self.members:
            if not windows:
                raise UserError(
                    f"{name!r} in the mixture {self.dataset!r} has no window of {self.seq_len + 1} tokens in split"
                    f" {self.split!r}; take a shorter SEQ"
                )
        return MixtureOrder([m[2] for m in self.members], [m[1] for m in self.members], seed)

    @classmethod
    def open(cls, folder: Path, split: str, seq_len: int, verify: bool = False) -> ShardSet:
        """Open a split; with ``verify`` read every byte and compare the digests.

        Raises UserError on a missing or damaged data set, another version, an unknown split, a split without
        a window.
        """
        if seq_len < 1:
            raise UserError(f"sequence length {seq_len} is too short: wanted 1 token or more")
        folder = Path(folder)
        manifest = read_manifest(folder)
        path = folder / "manifest.json"
        try:
            splits, vocab, digest = manifest["splits"], manifest["tokenizer"]["vocab_size"], manifest["digest"]
            if split in splits:
                wanted = [(s["file"], int(s["tokens"]), s["sha256"]) for s in splits[split]["shards"]]
                total = int(splits[split]["tokens"])
            if not all(isinstance(text, str) for text in (digest, manifest["dataset"])):
                raise TypeError("digest or dataset, which are no texts")
            task = Task.of(manifest)
            for entry in manifest.get("mixture") or ():
                if int(entry["weight"]) < 1 or not isinstance(entry["dataset"], str):
                    raise ValueError(f"mixture {entry}")
            mixture = manifest.get("mixture") if split in splits else None
            if mixture and sum(int(entry["shards"][split]) for entry in mixture) != len(wanted):
                raise ValueError("mixture, which counts other shards")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path} is damaged: {type(error).__name__} at {error}; {_again(folder)}") from None
        if split not in splits:
            raise UserError(f"{path} has no split {split!r}: wanted one of {', '.join(sorted(splits))}")
        if type(vocab) is not int or not 2 <= vocab <= 1 << 16:
            raise UserError(f"{path} has vocab_size {vocab!r}, wanted 2 to 65536; {_again(folder)}")
        if total != sum(tokens for _, tokens, _ in wanted):
            raise UserError(f"{path} is damaged: split {split!r} counts {total} tokens, its shards another number")
        if verify and manifest_digest(manifest) != manifest["digest"]:
            raise UserError(f"{path} was changed after it was written (its digest differs); {_again(folder)}")
        if task is not None:
            task.check_seq_len(seq_len)
        # The columns of an example's labels are no tokens, so their values are not checked against the vocabulary.
        limit = None if not verify else vocab if task is None else 1 << 16
        arrays = [cls._map(folder, *shard, limit) for shard in wanted]
        shards = cls(folder, manifest, split, seq_len, arrays, task)
        if shards.n_windows == 0:
            raise UserError(
                f"split {split!r} of {folder} has no window of {seq_len + 1} tokens:"
                f" {shards.tokens} tokens in {len(wanted)} shards; take a shorter SEQ or more records"
            )
        return shards

    @staticmethod
    def _map(folder: Path, name: str, tokens: int, sha256: str, vocab: int | None) -> np.ndarray:
        """Map one shard, uint16 of shape (tokens,), after checking its size and, given a vocabulary, its
        content."""
        if not isinstance(name, str) or not SHARD_FILE.fullmatch(name) or tokens < 0:
            raise UserError(f"{folder / 'manifest.json'} names a shard {name!r} of {tokens} tokens; {_again(folder)}")
        path = folder / name
        try:
            size = path.stat().st_size
            if size != tokens * TOKEN.itemsize:
                raise UserError(
                    f"{path} has {size} bytes, wanted {tokens * TOKEN.itemsize} ({tokens} tokens);"
                    f" it was cut off or changed: {_again(folder)}"
                )
            if size == 0:
                return np.empty(0, TOKEN)  # an empty file cannot be mapped
            # a plain array: slices of numpy's memmap class cost more
            array = np.asarray(np.memmap(path, dtype=TOKEN, mode="r"))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}; {_again(folder)}") from None
        if vocab is not None:
            seen = _file_sha256(path)
            if seen != sha256:
                raise UserError(f"{path} has SHA-256 {seen[:12]}..., wanted {sha256[:12]}...; {_again(folder)}")
            if int(array.max()) >= vocab:
                raise UserError(f"{path} holds token {int(array.max())}, vocabulary is {vocab}; {_again(folder)}")
        return array

    def gather(self, indices: np.ndarray, out: np.ndarray) -> None:
        """Copy windows into ``out``, C-contiguous uint16 of shape (len(indices), seq_len + 1).

        Raises IndexError for a window that does not exist. Memory beside ``out``: at most 1024 windows.
        """
        indices = np.ascontiguousarray(indices, dtype=np.int64)
        shape = (indices.size, self.seq_len + 1)
        if out.shape != shape or out.dtype != TOKEN or not out.flags.c_contiguous:
            raise ValueError(f"out must be contiguous uint16 of shape {shape}, got {out.dtype} {out.shape}")
        if not indices.size:
            return
        if np.maximum.reduce(indices.view(np.uint64)) >= self.n_windows:  # a negative number is a huge one there
            raise IndexError(f"windows {indices.min()} to {indices.max()} asked, there are {self.n_windows}")
        if len(self._shards) == 1:
            self._gather_one(self._shards[0], indices, out)
            return
        rows = np.ndarray(indices.shape, self._row, out)
        owner = np.searchsorted(self._ends, indices, side="right")
        for number in np.unique(owner):
            here = np.flatnonzero(owner == number)
            first = self._ends[number - 1] if number else 0
            rows[here] = self._shards[number][2][indices[here] - first]

    def _gather_one(self, shard: tuple, indices: np.ndarray, out: np.ndarray) -> None:
        """Gather from one shard by the way that is fastest for the number of rows.

        ``take`` copies rows of whole memory in a tight loop, several cache misses in flight, but cannot read
        overlapping rows: it brings seq_len tokens into a scratch array, and the last token of each window,
        the first of the next row, comes by itself. For few rows one fancy index over overlapping rows costs
        less.
        """
        array, body, rows = shard
        if self.task is not None:
            body.take(indices, axis=0, out=out, mode="clip")
            return
        if indices.size < _FEW_ROWS:
            np.ndarray(indices.shape, self._row, out)[...] = rows[indices]
            return
        # every index was checked, so "clip" only spares numpy a second check and a buffer
        last = array.take((indices + 1) * self.seq_len, mode="clip")
        scratch = np.empty((min(indices.size, _CHUNK_ROWS), self.seq_len), dtype=TOKEN)
        for start in range(0, indices.size, _CHUNK_ROWS):
            part = indices[start : start + _CHUNK_ROWS]
            body.take(part, axis=0, out=scratch[: part.size], mode="clip")
            out[start : start + part.size, :-1] = scratch[: part.size]
        out[:, -1] = last
