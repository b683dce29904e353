"""List the data sets of the catalogue and what is here of them: recordings in RAW, shards in DATA.

python -m data_prep datasets --raw RAW --data DATA [--format table|csv|json]
"""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from data_prep import catalogue
from data_prep.fetch_progress import size_text
from data_prep.fetch_store import state_of
from ecg_train.shards import NAME

_MOST_ENTRIES = 200_000  # of a folder without a note of ours that are counted; then the count is a lower bound
_LARGEST_MANIFEST = 256 << 20  # bytes that are parsed for a count of records
HERE = ("raw_records", "raw_bytes", "raw_state", "shard_records", "shard_bytes")


def recordings(folder: Path) -> dict:
    """Return what a folder of recordings holds: records, bytes, and "complete", "part", "own" or None."""
    if not folder.is_dir():
        return {"raw_records": None, "raw_bytes": None, "raw_state": None}
    state = state_of(folder)
    if state and state.get("complete") and isinstance(state.get("bytes"), int):
        label = "complete" if state.get("limit") is None else "part"
        return {"raw_records": state.get("records"), "raw_bytes": state["bytes"], "raw_state": label}
    records = total = seen = 0
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            seen += 1
            if name.startswith(".fetch"):
                continue
            records += name.endswith(".hea")
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue
        if seen >= _MOST_ENTRIES:
            break
    label = ("own" if state is None else "part") + (", at least" if seen >= _MOST_ENTRIES else "")
    return {"raw_records": records, "raw_bytes": total, "raw_state": label}


def shards(folder: Path) -> dict:
    """Return the records and bytes of a shard set; None where there is none, or it says nothing."""
    path = folder / "manifest.json"
    try:
        records = None
        if path.stat().st_size <= _LARGEST_MANIFEST:
            kept = json.loads(path.read_bytes()).get("records")
            records = len(kept) if isinstance(kept, list) else None
        total = sum(shard.stat().st_size for shard in folder.glob("*.bin"))
    except (OSError, ValueError, AttributeError):
        return {"shard_records": None, "shard_bytes": None}
    return {"shard_records": records, "shard_bytes": total}


def rows(entries: dict[str, catalogue.Entry], raw: Path, data: Path) -> list[dict]:
    """Return one row a data set: those of the catalogue, then others that are here."""
    found = [
        asdict(entry) | recordings(raw / name) | shards(data / name) | {"catalogue": True}
        for name, entry in entries.items()
    ]
    others = {path.parent.name for path in data.glob("*/manifest.json")} - entries.keys()
    for name in sorted(name for name in others if NAME.fullmatch(name)):
        found.append({"name": name, "catalogue": False} | recordings(raw / name) | shards(data / name))
    return found


def _number(value: int | None, about: bool = False) -> str:
    return "" if value is None else f"{'~' if about else ''}{value}"


def _here(row: dict) -> tuple[str, str]:
    raw, made = "", ""
    if row["raw_state"] is not None:
        raw = f"{_number(row['raw_records'])} rec, {size_text(row['raw_bytes'])} ({row['raw_state']})"
    if row["shard_bytes"] is not None:
        made = f"{_number(row['shard_records'])} rec, {size_text(row['shard_bytes'])}"
    return raw, made


def table(found: list[dict]) -> str:
    from tabulate import tabulate

    lines = []
    for row in found:
        about = bool(row.get("about"))
        terms = row.get("licence") or ""
        if row.get("access", "open") != "open":
            terms = f"{terms} [{row['access']}]".strip()
        convertible = row.get("format", "wfdb") == "wfdb"
        lines.append(
            [
                row["name"],
                row.get("version") or "",
                *(_number(row.get(key), about) for key in ("records", "patients")),
                row.get("size") or "",
                row.get("rate") or "",
                row.get("leads") or "",
                terms if convertible else f"{terms} ({row['format']}: not convertible)".strip(),
                *_here(row),
            ]
        )
    heads = [
        "name",
        "version",
        "records",
        "patients",
        "size",
        "Hz",
        "leads",
        "licence",
        "recordings here",
        "shards here",
    ]
    return tabulate(
        lines, headers=heads, disable_numparse=True, colalign=["left", "left", *["right"] * 5, *["left"] * 3]
    )


@click.command()
@click.option("--raw", required=True, type=click.Path(path_type=Path), help="Folder of raw recordings.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Folder of shard sets.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
def command(raw: Path, data: Path, form: str) -> None:
    """List the public data sets that can be fetched, their terms, and what is here of them.

    A blank is a fact that no source of the catalogue states. [non-commercial] and [credentialed] sets want
    ACCEPT_LICENSE=name.
    """
    found = rows(catalogue.load(), raw, data)
    if form == "json":
        print(json.dumps(found, indent=1))
    elif form == "csv":
        columns = ["name", *(key for key in found[0] if key not in ("name", "files", "exclude"))]
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in found:
            cells = (row.get(key) for key in columns)
            writer.writerow(["" if c is None else " ".join(c) if isinstance(c, (list, tuple)) else c for c in cells])
    else:
        print(table(found))
