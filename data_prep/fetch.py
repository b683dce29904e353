"""Fetch the recordings of a data set of the catalogue into a folder, verified against the archive's own SHA256SUMS.txt.

python -m data_prep fetch --dataset mitdb --raw RAW [--limit N] [--connections N] [--accept NAME]

Killed at any moment, the same command goes on where it was: a file is under its name only when it was verified.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from data_prep import catalogue
from data_prep.catalogue import Entry
from data_prep.errors import WorkError
from data_prep.fetch_http import Client, RefusedError, StoppedError, UnreachableError
from data_prep.fetch_list import Wanted, choose, read_sums
from data_prep.fetch_progress import FetchProgress, size_text
from data_prep.fetch_store import Store, state_of
from ecg_train.errors import UserError

SUMS = "SHA256SUMS.txt"
CONNECTIONS = 4
_LARGEST_LIST = 2 << 30  # bytes of a SHA256SUMS.txt that is still believed
_MOST_FAILURES = 20  # files that fail before the rest is given up
_ASKED = 8  # files of each kind whose size is asked for, to reckon the rest


def is_there(folder: Path, limit: int | None) -> bool:
    """Say whether a folder holds what is wanted: a person's own copy, or an earlier fetch of as many records."""
    state = state_of(folder)
    if state is None:
        return folder.is_dir() and any(not path.name.startswith(".fetch") for path in folder.iterdir())
    if not state.get("complete"):
        return False
    have = state.get("limit")
    return have is None or (limit is not None and have >= limit)


def fetch(
    entry: Entry,
    raw: Path,
    limit: int | None = None,
    connections: int = CONNECTIONS,
    accepted: tuple[str, ...] = (),
    client: Client | None = None,
) -> int:
    """Bring a data set to RAW/<name>; return the files that it has. Raises UserError or WorkError."""
    if entry.format != "wfdb":
        raise UserError(
            f"{entry.name} is {entry.format}, not WFDB, and cannot be fetched and converted here: {entry.page}"
        )
    if entry.needs_yes and entry.name not in accepted:
        raise UserError(
            f"{entry.name} is {entry.access} (licence: {entry.licence or 'see its page'}); read {entry.page} and, if"
            f" you may use it, say so: ACCEPT_LICENSE={entry.name}"
        )
    base = entry.base()
    print(f"{entry.name}: from {base}; licence: {entry.licence or 'see ' + entry.page}", file=sys.stderr)
    client = client or Client(base, **({"tries": 2} if "SLURM_JOB_ID" in os.environ else {}))
    with Store(raw / entry.name) as store:
        state = {"dataset": entry.name, "version": entry.version, "address": base, "limit": limit, "complete": False}
        store.write_state(state)
        wanted = choose(entry, _sums(client, store, entry, limit, accepted), limit, base + SUMS)
        missing, size = [], 0
        for one in wanted:
            here = store.has(one.path, one.digest)
            if here is None:
                missing.append(one)
            size += here or 0
        if missing:
            size += _bring(entry, client, store, missing, max(1, min(connections, len(missing))))
        records = sum(one.path.endswith(".hea") for one in wanted)
        store.write_state(state | {"complete": True, "files": len(wanted), "bytes": size, "records": records})
    return len(wanted)


def _sums(
    client: Client, store: Store, entry: Entry, limit: int | None, accepted: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Fetch the list of digests anew, and read it."""
    descriptor, part = store.open_part(SUMS)
    try:
        os.ftruncate(descriptor, 0)
        client.download(SUMS, descriptor, None, lambda: min(store.room(), _LARGEST_LIST))
    except UnreachableError as error:
        raise WorkError(f"{error}. {_on_the_login_node(store.folder.parent, entry, limit, accepted)}") from None
    except RefusedError:
        raise
    except WorkError as error:
        if "HTTP 404" not in str(error):
            raise
        raise WorkError(
            f"{error}: without {SUMS} nothing can be verified, so nothing is fetched; is the address right?"
            " Recordings that you have from elsewhere: SRC=/path/to/folder"
        ) from None
    finally:
        os.close(descriptor)
    place = store.place(SUMS)
    if place.is_symlink() or place.is_dir():
        raise WorkError(f"{place} is a symbolic link or a folder; remove it")
    os.replace(part, place)
    with place.open(encoding="utf-8", errors="strict") as lines:
        try:
            yield from read_sums(lines, client.base + SUMS)
        except UnicodeDecodeError:
            raise WorkError(f"{client.base}{SUMS} is not text") from None


def _on_the_login_node(raw: Path, entry: Entry, limit: int | None, accepted: tuple[str, ...]) -> str:
    """Say what to type where there is a way to the internet."""
    command = ["make", "data", f"DATASET={entry.name}", "FETCH=only", f"ECG_RAW={raw}"]
    command += [f"LIMIT={limit}"] if limit is not None else []
    command += [f"ACCEPT_LICENSE={entry.name}"] if entry.name in accepted else []
    root = os.environ.get("ECG_ROOT") or str(Path(__file__).resolve().parent.parent)
    where = "This is a compute node of a job" if "SLURM_JOB_ID" in os.environ else "Compute nodes often have no way out"
    return f"{where}: fetch on the login node: cd {shlex.quote(root)} && {shlex.join(command)}"


def reckon(client: Client, missing: list[Wanted]) -> int | None:
    """Return the bytes of files, from the stated sizes of some of each kind; None where the server states none."""
    kinds: dict[str, list[Wanted]] = {}
    for one in missing:
        kinds.setdefault(one.path.rsplit("/", 1)[-1].rpartition(".")[2], []).append(one)
    total = 0.0
    for files in kinds.values():
        asked = files[:: max(1, -(-len(files) // _ASKED))]
        sizes = [client.size(one.remote) for one in asked]
        known = [size for size in sizes if size is not None]
        if not known:
            return None
        total += sum(known) / len(known) * len(files)
    return round(total)


def _bring(entry: Entry, client: Client, store: Store, missing: list[Wanted], connections: int) -> int:
    """Fetch files by several threads; return their bytes. Raises WorkError that names what did not come."""
    total, room = reckon(client, missing), store.room()
    if total is not None and total > room:
        raise WorkError(
            f"{entry.name} wants about {size_text(total)} more, {store.folder} has room for {size_text(max(0, room))}:"
            " make room, set ECG_RAW to another disk, or take a part with LIMIT=records"
        )
    failures: list[tuple[str, WorkError]] = []
    sizes: list[int] = []
    queue, guard = iter(missing), threading.Lock()

    def work(progress: FetchProgress) -> None:
        while not client.stop.is_set():
            with guard:
                one = next(queue, None)
            if one is None:
                return
            try:
                size = _one(client, store, one, progress.bytes)
            except StoppedError:
                return
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                with guard:
                    failures.append((one.path, error))
                    if (
                        not isinstance(error, WorkError)
                        or isinstance(error, RefusedError)
                        or len(failures) >= _MOST_FAILURES
                    ):
                        client.stop.set()
            else:
                with guard:
                    sizes.append(size)
                progress.file()

    with FetchProgress(entry.name, len(missing), total) as progress:
        _in_threads(lambda: work(progress), connections, client)
    if failures:
        raise _failure(entry, failures, len(missing) - len(sizes))
    return sum(sizes)


def _in_threads(work: Callable[[], None], count: int, client: Client) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        client.stop.set()
        raise


def _one(client: Client, store: Store, one: Wanted, report: Callable[[int], None]) -> int:
    """Bring one file to its name, verified."""
    descriptor, part = store.open_part(one.path)
    try:
        client.download(one.remote, descriptor, one.digest, store.room, report)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    os.replace(part, store.place(one.path))
    store.note(one.path, one.digest)
    return size


def _failure(entry: Entry, failures: list[tuple[str, WorkError]], missing: int) -> WorkError:
    for _, error in failures:
        if not isinstance(error, WorkError):
            raise error
    chief = next((error for _, error in failures if isinstance(error, RefusedError)), failures[0][1])
    others = [path for path, error in failures if error is not chief]
    more = f"; also {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}" if others else ""
    return WorkError(f"{entry.name}: {missing} files are missing: {chief}{more}. The same command fetches only these")


@click.command()
@click.option("--dataset", required=True, help="Name in the catalogue.")
@click.option("--raw", required=True, type=click.Path(path_type=Path), help="Folder of raw recordings: RAW/DATASET.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many records.  [default: all]")
@click.option("--connections", type=click.IntRange(1, 16), default=CONNECTIONS, show_default=True)
@click.option("--accept", multiple=True, help="Name of a data set whose terms are accepted.")
@click.option("--catalogue", "file", type=click.Path(path_type=Path), default=catalogue.FILE, help="Another catalogue.")
def command(dataset: str, raw: Path, limit: int | None, connections: int, accept: tuple[str, ...], file: Path) -> None:
    """Fetch the recordings of a data set, verified, unless they are there.

    $ECG_MIRROR replaces https://physionet.org/files; a login comes from ~/.netrc or ECG_ARCHIVE_USER and
    ECG_ARCHIVE_PASSWORD; proxies from http_proxy, https_proxy and no_proxy.
    """
    raw = raw.absolute()
    if is_there(raw / dataset, limit):
        return
    entry = catalogue.find(dataset, catalogue.load(file))
    files = fetch(entry, raw, limit, connections, accept)
    print(f"{dataset}: {files} files verified in {raw / dataset}", file=sys.stderr)
    if entry.citation:
        print(f"{dataset}: please cite: {entry.citation}", file=sys.stderr)
    with suppress(BrokenPipeError):
        sys.stderr.flush()
