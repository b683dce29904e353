"""What runs in the worker processes: convert a record into a spool, join spooled records to a shard.

A spool is one token file per worker with an index beside it, one JSON line per finished record, written after the
record's tokens. So a killed run keeps what it finished, and a hundred thousand records do not make as many files.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import signal
import warnings
import zlib
from pathlib import Path

import numpy as np

from data_prep.header import Refusal
from data_prep.plan import Item
from data_prep.record import Settings, convert
from ecg_train.tokens import VOCAB_SIZE

_CHUNK = 1 << 17  # tokens joined at a time: what a second-level cache holds
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


class OutputError(OSError):
    """Writing failed; the record is not to blame."""


class Spool:
    """Append finished records to a pair of files of this process's own in ``folder``."""

    def __init__(self, folder: Path):
        name = f"part-{os.getpid()}-{secrets.token_hex(4)}"
        self.name = f"{name}.tok"
        self._tokens = open(folder / self.name, "xb", buffering=0)  # noqa: SIM115 - open until the process ends
        self._index = open(folder / f"{name}.jsonl", "xb", buffering=0)  # noqa: SIM115
        self._at = 0

    def add(self, entry: dict, stream: np.ndarray | None) -> dict:
        """Write the tokens, then the entry completed with where they are. Raises OutputError."""
        try:
            if stream is not None:
                raw = memoryview(stream.astype("<u2", copy=False)).cast("B")
                entry |= {"spool": self.name, "at": self._at, "crc": zlib.crc32(raw)}
                while raw:
                    n = self._tokens.write(raw)
                    self._at += n
                    raw = raw[n:]
            line = json.dumps(entry).encode() + b"\n"
            if self._index.write(line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None
        return entry


def load_index(folder: Path) -> dict[str, dict]:
    """Return key -> entry of all records that earlier runs finished; a line cut off by a kill is passed over."""
    found: dict[str, dict] = {}
    for path in sorted(folder.glob("part-*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                key, spool = entry["key"], entry.get("spool")
            except (ValueError, KeyError, TypeError):
                continue
            if spool is not None:
                end = entry["at"] + 2 * entry["facts"]["tokens"]
                file = folder / spool
                if not file.is_file() or file.stat().st_size < end:
                    continue
            entry["kept"] = True
            found[key] = entry
    return found


_spool: Spool | None = None
_folder: Path | None = None
_parent = 0


def start(folder: Path, parent: int) -> None:
    """Prepare a worker process: end with the parent even where that is killed, leave Ctrl-C to the parent."""
    global _folder, _spool, _parent
    _folder, _spool, _parent = folder, None, parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Elsewhere than on Linux an orphan waits for work that never comes, which costs its memory and no more.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    # Arrays of a few MB come and go with every record; as fresh pages they cost as much as the arithmetic.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, 512 << 20)
    if os.getppid() != parent:
        os._exit(1)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")


def work(item: Item, root: Path, settings: Settings) -> dict:
    """Convert one record and return its entry: facts and place of the tokens, or the reason why not.

    Raises OutputError; anything that the record can cause becomes a reason.
    """
    global _spool
    if _spool is None:
        try:
            _spool = Spool(_folder)
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None
    entry: dict = {"key": item.key}
    stream = None
    try:
        entry["facts"], stream = convert(item.path, root, settings)
    except Refusal as refusal:
        entry["skip"] = [refusal.reason, refusal.detail]
    except MemoryError:
        entry["skip"] = ["implausible-size", "out of memory"]
    except Exception as error:  # noqa: BLE001 - one bad record never stops the run
        entry["skip"] = ["unreadable-signal", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"]
    return _spool.add(entry, stream)


def join(target: Path, pieces: list[tuple[Path, int, int, int | None]]) -> tuple[str, list[int]]:
    """Write a shard of pieces (spool, byte offset, tokens, CRC or None); return its SHA-256 and its histogram.

    Raises OutputError, also where a kept piece does not have its CRC.
    """
    digest = hashlib.sha256()
    histogram = np.zeros(VOCAB_SIZE, np.int64)
    try:
        with open(target, "wb", buffering=0) as out:
            for spool, at, n, crc in pieces:
                whole = np.memmap(spool, "<u2", "r", at, (n,))
                if crc is not None and zlib.crc32(whole) != crc:
                    spool.with_suffix(".jsonl").unlink(missing_ok=True)
                    raise OSError(None, "records kept from an earlier run were damaged and are now forgotten")
                for start_at in range(0, n, _CHUNK):
                    part = whole[start_at : start_at + _CHUNK]
                    raw = memoryview(part).cast("B")
                    digest.update(raw)
                    histogram += np.bincount(part, minlength=VOCAB_SIZE)
                    while raw:
                        raw = raw[out.write(raw) :]
            os.fsync(out.fileno())
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from None
    return digest.hexdigest(), histogram.tolist()
