"""Convert a folder of WFDB records to a shard set: atomic, resumable, the same bytes for any number of jobs.

Everything is made in DATA/<dataset>/.work and moved into place at the end, the manifest last. A run that is killed
leaves no manifest; the next one goes on with the records that were finished.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from data_prep import assemble, plan, pool, splits, work
from data_prep.errors import WorkError
from data_prep.progress import Progress
from data_prep.record import Settings
from ecg_train.errors import UserError

WORK = ".work"
STATE = ".state.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Outcome:
    """What a conversion did; ``fresh`` is False where the set was there, complete and unchanged."""

    manifest: dict
    folder: Path
    fresh: bool


def convert(
    dataset: str,
    src: Path,
    out: Path,
    jobs: int | None = None,
    synthetic: bool = False,
    settings: Settings | None = None,
    shard_tokens: int = assemble.SHARD_TOKENS,
) -> Outcome:
    """Convert the records below src to the shard set out/dataset. Raises UserError (exit 2), WorkError (exit 1)."""
    plan.check_dataset(dataset)
    settings = settings or Settings()
    jobs = pool.cores() if jobs is None else jobs
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}; wanted a whole number of at least 1")
    src, folder = Path(os.path.abspath(src)), Path(os.path.abspath(out)) / dataset
    if src == folder:
        raise UserError(f"SRC={src} is where the shards go; keep recordings and shards in different folders")
    items = plan.scan(src, settings)
    rule = splits.rule_for(dataset, src)
    sources = _sources(dataset, synthetic, shard_tokens, items, src)
    done = _unchanged(folder, sources)
    if done is not None:
        return Outcome(done, folder, fresh=False)
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), _tidy(folder):
            entries = _entries(items, src, folder, jobs, settings)
            manifest = assemble.build(
                dataset, synthetic, items, entries, rule, settings, folder / WORK, jobs, shard_tokens
            )
            if manifest is None:
                raise UserError(_none_usable(src, items, entries))
            assemble.publish(manifest, folder, folder / WORK)
            _remember(folder, sources, manifest)
            shutil.rmtree(folder / WORK, ignore_errors=True)
    except OSError as error:
        raise WorkError(_says(error, folder)) from None
    finally:
        for path in made:  # leave no empty folder behind a request that failed
            with contextlib.suppress(OSError):
                path.rmdir()
    return Outcome(manifest, folder, fresh=True)


def _says(error: OSError, folder: Path) -> str:
    text = error.strerror or str(error)
    if error.errno in _FULL:
        return f"writing to {folder} failed: {text}; free some space and run the same command again, it resumes"
    return f"writing to {folder} failed: {text}; run the same command again, it resumes"


def _none_usable(src: Path, items: list, entries: list[dict]) -> str:
    reasons = Counter(e["skip"][0] for e in entries)
    text = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
    first = items[0].record + ": " + entries[0]["skip"][1]
    return f"SRC={src} has {len(items)} records and none can be used ({text}); first: {first}"


def _sources(dataset: str, synthetic: bool, shard_tokens: int, items: list, src: Path) -> str:
    table = src / "ptbxl_database.csv"
    stamp = [table.stat().st_size, table.stat().st_mtime_ns] if table.is_file() else None
    parts = [dataset, synthetic, shard_tokens, stamp, [[i.key, i.refusal] for i in items]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _stamps(folder: Path, manifest: dict) -> dict:
    names = ["manifest.json", *(s["file"] for split in manifest["splits"].values() for s in split["shards"])]
    return {n: [(folder / n).stat().st_size, (folder / n).stat().st_mtime_ns] for n in names}


def _unchanged(folder: Path, sources: str) -> dict | None:
    """Return the manifest where the set is complete and made from the same sources in the same way."""
    try:
        state = json.loads((folder / STATE).read_bytes())
        manifest = json.loads((folder / "manifest.json").read_bytes())
        same = state["sources"] == sources and state["files"] == _stamps(folder, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if same else None


def _remember(folder: Path, sources: str, manifest: dict) -> None:
    new = folder / WORK / STATE
    new.write_text(json.dumps({"sources": sources, "files": _stamps(folder, manifest)}), encoding="ascii")
    os.replace(new, folder / STATE)


@contextlib.contextmanager
def _locked(folder: Path, patience: float = 5.0):
    """Hold the data set's lock; workers of a run that was just killed may keep it for a moment."""
    until = time.monotonic() + patience
    while True:
        (folder / WORK).mkdir(exist_ok=True)
        with open(folder / WORK / "lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = _is(lock, folder / WORK / "lock")  # else its owner has ended and removed it meanwhile
            except BlockingIOError:
                held = False
            except OSError:
                held = True  # a file system without locks
            if held:
                yield
                return
        if time.monotonic() > until:
            raise UserError(f"another conversion is writing to {folder}; wait for it to end")
        time.sleep(0.1)


def _is(file: IO, path: Path) -> bool:
    """Tell whether the open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _tidy(folder: Path):
    """After a failure keep finished records for the next run, nothing else; nothing at all after a bad request."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder / WORK / assemble.STAGE, ignore_errors=True)
        if isinstance(error, UserError):
            shutil.rmtree(folder / WORK, ignore_errors=True)
        raise


def _entries(items: list, src: Path, folder: Path, jobs: int, settings: Settings) -> list[dict]:
    """Return one entry per item, from an earlier run or made now."""
    spool = folder / WORK
    kept = work.load_index(spool)
    entries: list[dict | None] = [kept.get(item.key) for item in items]
    for i, item in enumerate(items):
        if item.refusal is not None:
            entries[i] = {"skip": list(item.refusal)}
    # Largest first, so that no core ends with the longest record while the others are idle.
    open_items = sorted((i for i, e in enumerate(entries) if e is None), key=lambda i: (-items[i].size, i))
    _check_space(folder, sum(items[i].estimate for i in open_items), sum(item.estimate for item in items))
    if not open_items:
        return entries
    import wfdb  # noqa: F401 - once, before the workers are forked

    with Progress(len(items), "convert") as progress:
        for entry in entries:
            if entry is not None:
                progress.step("skip" in entry)
        tasks = [(items[i], src, settings) for i in open_items]
        for number, entry in pool.run(work.work, tasks, jobs, spool):
            i = open_items[number]
            entries[i] = entry or {"skip": ["reader-died", "the process that read it was killed, twice"]}
            progress.step("skip" in entries[i])
    return entries


def _check_space(folder: Path, tokens_left: int, tokens_all: int) -> None:
    """Refuse work that cannot fit: two bytes a token, once in the spool and once in the shards."""
    need = 2 * (tokens_left + tokens_all) + (1 << 20)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise WorkError(
            f"{folder} has {free / 1e6:.0f} MB free, the conversion needs about {need / 1e6:.0f} MB; "
            "free some space or set ECG_DATA (--out) to another folder, then run the same command again"
        )
