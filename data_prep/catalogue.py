"""The public data sets that `make data` can fetch: what catalogue.toml says of them, checked."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from ecg_train.errors import UserError

FILE = Path(__file__).with_name("catalogue.toml")
PHYSIONET = "https://physionet.org/files/"
MIRROR_VARIABLE = "ECG_MIRROR"
ACCESS = ("open", "non-commercial", "credentialed")


@dataclass(frozen=True)
class Entry:
    """One data set; None or "" where no source says."""

    name: str
    title: str
    access: str
    page: str
    version: str = ""
    address: str = ""
    folder: str = ""
    size: str = ""
    records: int | None = None
    patients: int | None = None
    about: bool = False
    rate: str = ""
    leads: str = ""
    licence: str = ""
    citation: str = ""
    patient_key: str = ""
    labels: str = ""
    split: str = ""
    note: str = ""
    format: str = "wfdb"
    files: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def needs_yes(self) -> bool:
        """Whether its terms are to be accepted by name before anything is fetched."""
        return self.access != "open"

    def wants(self, path: str) -> bool:
        """Say whether a file of the archive, by its path below ``folder``, is to be fetched."""
        name = path.rsplit("/", 1)[-1]
        if not any(fnmatchcase(name, pattern) for pattern in self.files):
            return False
        return not any(fnmatchcase(path, pattern) for pattern in self.exclude)

    def base(self) -> str:
        """Return the address of the archive's files, at the mirror where $ECG_MIRROR names one."""
        mirror = os.environ.get(MIRROR_VARIABLE, "")
        if not mirror or not self.address.startswith(PHYSIONET):
            return self.address
        if not mirror.startswith(("http://", "https://")):
            raise UserError(f"{MIRROR_VARIABLE}={mirror!r} is no address: wanted http:// or https://, for {PHYSIONET}")
        if "@" in mirror:
            raise UserError(
                f"{MIRROR_VARIABLE} holds an '@': a password does not belong in an address, but in ~/.netrc"
            )
        return mirror.rstrip("/") + "/" + self.address.removeprefix(PHYSIONET)


def load(path: Path = FILE) -> dict[str, Entry]:
    """Read a catalogue: name -> entry, in the order of the file. Raises UserError for what an entry cannot be."""
    try:
        tables = tomllib.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a catalogue: {error}") from None
    common = tuple(tables.pop("default", {}).get("files", ()))
    return {name: _entry(path, name, table, common) for name, table in tables.items()}


def _entry(path: Path, name: str, table: dict, common: tuple[str, ...]) -> Entry:
    from ecg_train.shards import NAME

    known = {field.name for field in fields(Entry)} - {"name"}
    if unknown := sorted(table.keys() - known):
        raise UserError(
            f"{path}: [{name}] has {', '.join(unknown)}, which no entry has; known: {', '.join(sorted(known))}"
        )
    if not NAME.fullmatch(name):
        raise UserError(f"{path}: [{name}] is no data set name")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    values["files"] = common + values.get("files", ())
    try:
        entry = Entry(name=name, **values)
    except TypeError as error:
        raise UserError(f"{path}: [{name}] is not complete: {error}") from None
    if entry.access not in ACCESS:
        raise UserError(f"{path}: [{name}] has access {entry.access!r}; known: {', '.join(ACCESS)}")
    if entry.format == "wfdb" and not (
        entry.address.startswith(("http://", "https://")) and entry.address.endswith("/")
    ):
        raise UserError(f"{path}: [{name}] has address {entry.address!r}; wanted a folder, http(s)://.../")
    return entry


def find(name: str, entries: dict[str, Entry]) -> Entry:
    """Return the entry of a name; UserError names what is near to it."""
    if name in entries:
        return entries[name]
    flat = {key.replace("-", "").replace("_", ""): key for key in entries}
    near = difflib.get_close_matches(name.replace("-", "").replace("_", ""), flat, n=1, cutoff=0.75)
    hint = f"did you mean {flat[near[0]]}? " if near else ""
    raise UserError(
        f"there are no recordings of {name!r} here, and the catalogue does not know it; {hint}`make datasets` lists it;"
        " recordings of your own: SRC=/path/to/folder"
    )
