"""Look through a source folder: which records there are, what they are made of, whether anything changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from data_prep.header import Header, Refusal, inside, load
from data_prep.record import Settings
from ecg_train import tokens
from ecg_train.errors import UserError

DATASET = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# Raise when the same input would give other tokens: kept results of an interrupted run are then not used.
RECIPE = 3


@dataclass
class Item:
    """One record to convert."""

    record: str
    """Path of the header below the source, without .hea, with slashes."""
    path: Path
    key: str
    """SHA-256 over all that its tokens depend on: header, sizes and times of its files, settings."""
    first_file: str | None
    size: int
    """Bytes of its signal files; only for the order of work."""
    estimate: int
    """Tokens, about, by the header."""
    refusal: tuple[str, str] | None = None
    """Why it need not be tried."""


def check_dataset(name: str) -> str:
    """Return name where it may be a data set's name, hence part of a path. Raises UserError."""
    if not DATASET.fullmatch(name):
        raise UserError(
            f"DATASET is {name[:80]!r}; wanted a name of at most 64 characters a-z, 0-9, '_' and '-' "
            "that starts with a letter or digit; try DATASET=mitdb"
        )
    return name


def _headers(src: Path) -> list[Path]:
    found, seen = [], set()
    for folder, folders, files in os.walk(src, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:  # a link that leads in a circle
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        found += [Path(folder, f) for f in sorted(files) if f.endswith(".hea") and len(f) > 4 and f[0] != "."]
    return found


def _fingerprint(path: Path) -> list:
    try:
        status = path.stat()
    except OSError:
        return [path.name, None]
    return [path.name, status.st_size, status.st_mtime_ns]


def _item(path: Path, src: Path, headers: dict[Path, Header], settings: Settings) -> Item:
    record = path.relative_to(src).as_posix().removesuffix(".hea")
    parts = [RECIPE, tokens.describe(), settings.describe(), record, _fingerprint(path)]
    header = headers.get(path)
    item = Item(record, path, "", None, 0, 0)
    if header is not None:
        group = [header]
        item.first_file = header.signals[0].file if header.signals else None
        for name, _ in header.segments:
            part = path.parent / f"{name}.hea"
            parts.append(_fingerprint(part))
            group += [headers[part]] if part in headers else []
        for one in group:
            for file in dict.fromkeys(s.file for s in one.signals if s.file != "~"):
                try:
                    parts.append(_fingerprint(inside(path.parent, file, src)))
                except Refusal:
                    continue  # the task will say so
                item.size += parts[-1][1] or 0 if len(parts[-1]) > 1 else 0
        frames = header.samples or 0
        leads = len(header.signals) or max((len(h.signals) for h in group), default=0)
        wanted = frames * leads * settings.rate / header.rate if header.rate > 0 else 0
        # A header may claim anything; what its files hold is the other bound (a byte gives at most a sample or so).
        item.estimate = int(min(wanted, 4 * item.size) if frames else item.size)
    item.key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return item


def scan(src: Path, settings: Settings) -> list[Item]:
    """Return the records below src, sorted by name. Raises UserError where there is no folder or no header.

    Segments of longer records are part of those, not records of their own. Of a PTB-XL recording that is there at
    500 Hz and at 100 Hz (00001_hr, 00001_lr) the 100 Hz one is converted, the other is a duplicate.
    """
    if not src.is_dir():
        what = "is not a folder" if src.exists() else "does not exist"
        raise UserError(f"SRC={src} {what}; wanted a folder with WFDB records (*.hea)")
    paths = _headers(src)
    if not paths:
        raise UserError(f"SRC={src} holds no WFDB header (*.hea); give the folder that holds the records")
    headers: dict[Path, Header] = {}
    refusals: dict[Path, Refusal] = {}
    for path in paths:
        try:
            headers[path] = load(path)
        except Refusal as refusal:
            refusals[path] = refusal
    segments = {p.parent / f"{name}.hea" for p, h in headers.items() for name, _ in h.segments}
    items = []
    names = {p.name for p in paths}
    for path in paths:
        if path in segments:
            continue
        item = _item(path, src, headers, settings)
        if path in refusals:
            item.refusal = (refusals[path].reason, refusals[path].detail)
        elif re.fullmatch(r"\d{5}_hr\.hea", path.name) and path.name.replace("_hr", "_lr") in names:
            item.refusal = ("duplicate", f"the same recording as {path.name[:5]}_lr")
        items.append(item)
    return sorted(items, key=lambda item: item.record)
