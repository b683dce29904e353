"""An archive on 127.0.0.1 that serves a folder, notes every request, and misbehaves as it is told."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Archive:
    """A running server; ``tricks`` maps a path to a function of (handler, content, nth request of that path) that
    answers itself and returns True, or returns False for an ordinary answer."""

    def __init__(self, files: dict[str, bytes], sums: bool = True) -> None:
        self.files = dict(files)
        if sums:
            self.files["SHA256SUMS.txt"] = sums_of(files)
        self.tricks: dict[str, Callable] = {}
        self.everywhere: Callable | None = None
        self.ranges = True
        self.head = True
        self.seen: Counter = Counter()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.guard = threading.Lock()
        self.active = self.most_active = 0
        archive = self

        class Handler(_Handler):
            owner = archive

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def got(self, path: str) -> list[dict[str, str]]:
        """Return the headers of the GET requests of one file."""
        return [headers for method, name, headers in self.requests if method == "GET" and name == path]


def sums_of(files: dict[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in files.items())
    return "".join(lines).encode()


class _Handler(BaseHTTPRequestHandler):
    owner: Archive
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def do_HEAD(self) -> None:
        path = self._path()
        content = self.owner.files.get(path) if self.owner.head else None
        self.owner.requests.append(("HEAD", path, dict(self.headers)))
        self.send_response(405 if not self.owner.head else 404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()

    def do_GET(self) -> None:
        owner, path = self.owner, self._path()
        with owner.guard:
            owner.requests.append(("GET", path, dict(self.headers)))
            nth = owner.seen[path]
            owner.seen[path] += 1
            owner.active += 1
            owner.most_active = max(owner.most_active, owner.active)
        try:
            content = owner.files.get(path)
            trick = owner.tricks.get(path) or (owner.everywhere if path != "SHA256SUMS.txt" else None)
            if trick is not None and trick(self, content, nth):
                return
            if content is None:
                self.answer(404, b"no such file")
            else:
                self.serve(content)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with owner.guard:
                owner.active -= 1

    def serve(self, content: bytes) -> None:
        """Answer as a sound server does, ranges and all."""
        wanted = self.headers.get("Range", "")
        if not (self.owner.ranges and wanted.startswith("bytes=")):
            self.answer(200, content)
            return
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        if start >= len(content):
            self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        else:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.answer(206, content[start:], {"Content-Range": span})

    def answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        """Send an answer; a ``length`` that is not the body's ends the connection after the body."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if length is not None and length != len(body):
            self.wfile.flush()
            self.close_connection = True


def files_below(folder: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}
