"""The folder that a fetch fills: what is there already, where files go, and how much room is left.

Beside the files lie ``.fetch.json`` (what was asked for, and whether it is complete) and ``.fetch.journal`` (digest,
size and time of every file that was verified, one a line, so that a resumed fetch does not read terabytes again). A
file under way is ``NAME.part``. No symbolic link inside the folder is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import threading
from pathlib import Path

from data_prep.errors import WorkError
from ecg_train.errors import UserError

STATE = ".fetch.json"
JOURNAL = ".fetch.journal"
LOCK = ".fetch.lock"
_FREE_KEPT = 256 << 20  # bytes that a fetch leaves free


def state_of(folder: Path) -> dict | None:
    """Return what an earlier fetch noted in a folder; None where it was not filled by a fetch."""
    try:
        state = json.loads((folder / STATE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return {}  # begun, and nothing is known of it
    return state if isinstance(state, dict) else {}


class Store:
    """A target folder, locked while the context is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._verified: dict[str, tuple[str, int, int]] = {}
        self._guard = threading.Lock()
        self._made: set[Path] = set()

    def __enter__(self) -> Store:
        if self.folder.is_symlink():
            raise UserError(f"{self.folder} is a symbolic link, and a fetch does not write through it; name its target")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise WorkError(f"{self.folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(f"another fetch is filling {self.folder}; wait for it") from None
        except OSError:
            pass  # a file system without locks
        self._read_journal()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._journal = os.open(self.folder / JOURNAL, flags, 0o666)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._journal)
        os.close(self._lock)

    def _read_journal(self) -> None:
        try:
            text = (self.folder / JOURNAL).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        for line in text.splitlines():
            fields = line.split(" ", 3)  # a line that was cut off by a kill has fewer, or a path that is not wanted
            if len(fields) == 4 and fields[1].isdigit() and fields[2].isdigit():
                self._verified[fields[3]] = (fields[0], int(fields[1]), int(fields[2]))

    def note(self, path: str, digest: str) -> None:
        """Remember that a file was verified."""
        status = self.place(path).lstat()
        line = (
            f"\n{digest} {status.st_size} {status.st_mtime_ns} {path}\n"  # the first newline ends a line that was cut
        )
        with self._guard:
            os.write(self._journal, line.encode())
            self._verified[path] = (digest, status.st_size, status.st_mtime_ns)

    def place(self, path: str) -> Path:
        """Return where a file goes, its folders made; WorkError where one of them is a link or no folder."""
        place = self.folder
        *folders, name = path.split("/")
        for part in folders:
            place = place / part
            if place in self._made:
                continue
            with contextlib.suppress(FileExistsError):
                place.mkdir()
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise WorkError(
                    f"{place} is a symbolic link or no folder; a fetch does not write through it: remove it"
                )
            self._made.add(place)
        return place / name

    def has(self, path: str, digest: str) -> int | None:
        """Return the size of a file that is there and right, None where it is to be fetched.

        A file that the journal does not know is read once. Raises WorkError for a link or a folder in its place.
        """
        place = self.place(path)
        try:
            status = place.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise WorkError(f"{place} is a symbolic link or no file; a fetch does not write through it: remove it")
        if self._verified.get(path) == (digest, status.st_size, status.st_mtime_ns):
            return status.st_size
        if sha256(place) != digest:
            return None
        self.note(path, digest)
        return status.st_size

    def open_part(self, path: str) -> tuple[int, Path]:
        """Open ``path``.part for reading and appending; return the descriptor and its path."""
        place = self.place(path)
        part = place.with_name(place.name + ".part")
        try:
            return os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), part
        except OSError as error:
            raise WorkError(f"{part} cannot be written: {error.strerror}") from None

    def room(self) -> int:
        """Return the bytes that may still be written here."""
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize - _FREE_KEPT

    def write_state(self, state: dict) -> None:
        text = json.dumps(state, indent=1, sort_keys=True) + "\n"
        new = self.folder / (STATE + ".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(new, self.folder / STATE)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
