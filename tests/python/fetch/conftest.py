"""Archives to fetch from: the real recordings where ECG_RAW has them, else bytes that look like some."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archive_server import Archive, files_below

from data_prep.catalogue import Entry

CREDENTIALS = ("ECG_ARCHIVE_USER", "ECG_ARCHIVE_PASSWORD", "NETRC", "SLURM_JOB_ID", "ECG_MIRROR")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this desk decides a test: no login, no proxy, no job."""
    for name in (*CREDENTIALS, *PROXIES, *(name.upper() for name in PROXIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def made_up(path: str, size: int) -> bytes:
    """Return bytes that no two files share."""
    blocks = (hashlib.sha256(f"{path}:{number}".encode()).digest() for number in range(-(-size // 32)))
    return b"".join(blocks)[:size]


@pytest.fixture
def recordings() -> dict[str, bytes]:
    """Three records of MIT-BIH with their annotations, and what else lies in such an archive."""
    raw = Path(os.environ.get("ECG_RAW", "/nowhere"), "mitdb")
    names = [f"{record}.{kind}" for record in (100, 101, 102) for kind in ("hea", "dat", "atr")]
    if (raw / "RECORDS").is_file():
        files = files_below(raw, names)
    else:
        files = {name: made_up(name, 700_000 if name.endswith("dat") else 300) for name in names}
    return files | {"RECORDS": b"100\n101\n102\n", "index.html": b"<p>not needed</p>", "doc/intro.htm": b"not needed"}


@pytest.fixture
def archive() -> Iterator[Callable[..., Archive]]:
    """Start archives; they end with the test."""
    running: list[Archive] = []

    def start(files: dict[str, bytes], sums: bool = True) -> Archive:
        running.append(Archive(files, sums))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def entry() -> Callable[..., Entry]:
    def make(server: Archive, **values: object) -> Entry:
        patterns = ("*.hea", "*.dat", "*.atr", "RECORDS")
        plain = {"title": "A test", "access": "open", "page": "http://page.test/", "address": server.base}
        return Entry(**({"name": "mitdb", "files": patterns} | plain | values))

    return make
