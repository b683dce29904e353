"""Which files of an archive are fetched: SHA256SUMS.txt read with distrust, and cut down to what is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from data_prep.catalogue import Entry
from data_prep.errors import WorkError

# "digest  path", "digest *path" (binary), and the single blank that some archives write.
_LINE = re.compile(r"([0-9A-Fa-f]{64}) [ *]?(\S.*)")
_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")


@dataclass(frozen=True)
class Wanted:
    """One file: its path below the target folder, its path below the address, its SHA-256."""

    path: str
    remote: str
    digest: str


def checked_path(path: str, source: str) -> str:
    """Return a path that stays below a folder; WorkError for any other: the list is then not to be trusted."""
    parts = path.removeprefix("./").split("/")
    for part in parts:
        if part in ("", ".", "..") or not _PART.fullmatch(part):
            raise WorkError(f"{source} names {path!r}, which does not stay below its folder; nothing was fetched")
    return "/".join(parts)


def read_sums(lines: Iterable[str], source: str) -> Iterable[tuple[str, str]]:
    """Yield (digest, path) of each line. Raises WorkError at a line that is none."""
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            web_page = " (a web page? the address may ask for a login)" if line.lstrip().startswith("<") else ""
            raise WorkError(f"{source}, line {number}: {line[:60]!r} is not a digest and a path{web_page}")
        yield match[1].lower(), checked_path(match[2], source)


def choose(entry: Entry, sums: Iterable[tuple[str, str]], limit: int | None, source: str) -> list[Wanted]:
    """Return the files to fetch, headers first, in the order of their paths.

    ``limit`` keeps the first so many records (headers by path) and what lies outside of records. Raises WorkError where
    nothing is left, or two lines contradict each other.
    """
    prefix = entry.folder.rstrip("/") + "/" if entry.folder else ""
    found: dict[str, Wanted] = {}
    for digest, remote in sums:
        if not remote.startswith(prefix):
            continue
        path = remote[len(prefix) :]
        if not path or not entry.wants(path) or any(part.startswith(".") for part in path.split("/")):
            continue
        old = found.setdefault(path, Wanted(path, remote, digest))
        if old.digest != digest:
            raise WorkError(f"{source} names {remote!r} twice, with two digests; nothing was fetched")
    headers = sorted(path for path in found if path.endswith(".hea"))
    if not headers:
        raise WorkError(f"{source} names no WFDB header (*.hea){f' below {prefix}' if prefix else ''}")
    _no_file_is_a_folder(found, source)
    kept = found.values() if limit is None else _limited(found, headers, limit)
    return sorted(kept, key=lambda wanted: (not wanted.path.endswith(".hea"), wanted.path))


def _no_file_is_a_folder(found: dict[str, Wanted], source: str) -> None:
    folders = {path.rsplit("/", 1)[0] for path in found if "/" in path}
    for folder in folders:
        parts = folder.split("/")
        for length in range(1, len(parts) + 1):
            if (name := "/".join(parts[:length])) in found:
                raise WorkError(f"{source} names {name!r} both as a file and as a folder; nothing was fetched")


def _limited(found: dict[str, Wanted], headers: list[str], limit: int) -> list[Wanted]:
    """Keep the files of the first records: those beside a header that carry its name and an extension."""
    stems = {path.removesuffix(".hea") for path in headers}
    kept = {path.removesuffix(".hea") for path in headers[:limit]}
    return [wanted for path, wanted in found.items() if (stem := _record_of(path, stems)) is None or stem in kept]


def _record_of(path: str, stems: set[str]) -> str | None:
    """Return the record (its header's path without .hea) that a file belongs to: names may hold dots."""
    stem = path
    while "." in stem.rsplit("/", 1)[-1]:
        stem = stem.rsplit(".", 1)[0]
        if stem in stems:
            return stem
    return None
