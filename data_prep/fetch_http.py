"""Bring one file of an archive over HTTP: resumed, verified, patient with a server in trouble.

Proxies (http_proxy, https_proxy, no_proxy) and ~/.netrc are what `requests` makes of them.
"""

from __future__ import annotations

import email.utils
import hashlib
import os
import random
import re
import threading
import time
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import requests
import urllib3

from data_prep.errors import WorkError
from ecg_train.errors import UserError

USER, PASSWORD = "ECG_ARCHIVE_USER", "ECG_ARCHIVE_PASSWORD"
AGENT = f"ecg-train/0.1 python-requests/{requests.__version__}"
CHUNK = 256 << 10
TRIES = 6  # failures in a row without one new byte
TIMEOUT = (15.0, 60.0)  # seconds: to connect, between two reads
LONGEST_WAIT = 600.0  # seconds that a server may ask us to wait
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class UnreachableError(WorkError):
    """No answer came from the host at all."""


class RefusedError(WorkError):
    """The host answers, and wants none of it: no use in asking for the other files."""


class StoppedError(WorkError):
    """Another thread failed for good."""


class _Again(Exception):  # noqa: N818 - no error, a reason to try again
    def __init__(self, reason: str, wait: float | None = None, silent: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.silent = wait, silent


class Part:
    """The beginning of a file on disk and its running SHA-256."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hash = hashlib.sha256()
        self.size = 0
        while chunk := os.pread(descriptor, CHUNK, self.size):
            self._hash.update(chunk)
            self.size += len(chunk)

    def append(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        view = memoryview(chunk)
        while view:
            written = os.pwrite(self._descriptor, view, self.size)
            self.size += written
            view = view[written:]

    def restart(self) -> None:
        os.ftruncate(self._descriptor, 0)
        self._hash, self.size = hashlib.sha256(), 0

    def digest(self) -> str:
        return self._hash.hexdigest()


class Client:
    """Ask one archive for its files; may be used by several threads."""

    def __init__(self, base: str, wait: Callable[[float], object] | None = None, tries: int = TRIES) -> None:
        self.base, self.host = base, urlsplit(base).hostname or base
        self.stop = threading.Event()
        self._wait = self.stop.wait if wait is None else wait
        self._tries = tries
        self._local = threading.local()
        self._not_before = 0.0  # on the monotonic clock; set for all threads by a Retry-After
        user, password = os.environ.get(USER), os.environ.get(PASSWORD)
        if bool(user) != bool(password):
            raise UserError(f"only one of {USER} and {PASSWORD} is set; set both, or neither and use ~/.netrc")
        self._auth = (user, password) if user and password else None
        if self._auth and urlsplit(base).scheme != "https" and self.host not in _LOCAL:
            raise UserError(f"{USER} is set, but {base} is not https: the password would go out in clear")

    def _session(self) -> requests.Session:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.headers.update({"User-Agent": AGENT, "Accept-Encoding": "identity"})  # lengths and ranges as stored
            session.auth, session.max_redirects = self._auth, 5
        return session

    def size(self, remote: str) -> int | None:
        """Return the bytes of a file as the server states them, None where it does not."""
        try:
            response = self._session().head(self.base + quote(remote), timeout=TIMEOUT, allow_redirects=True)
            text = response.headers.get("Content-Length", "") if response.status_code == 200 else ""
        except requests.RequestException:
            return None
        return int(text) if text.isdigit() else None

    def download(
        self,
        remote: str,
        descriptor: int,
        digest: str | None,
        room: Callable[[], int],
        report: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Complete the file of a descriptor that may hold its beginning; ``report`` is told of new bytes.

        A wrong digest is answered by one more try from the beginning. Raises WorkError: not there, wrong twice, no
        room; RefusedError, UnreachableError, StoppedError.
        """
        part = Part(descriptor)
        report(part.size)
        furthest, failures, wrong = part.size, 0, 0
        if digest is not None and part.size and part.digest() == digest:
            return
        while True:
            try:
                self._transfer(remote, part, room, report)
            except _Again as again:
                if digest is not None and part.digest() == digest:
                    return  # all of it is here, whatever the server said of its length
                failures = 1 if part.size > furthest else failures + 1
                furthest = max(furthest, part.size)
                if failures >= self._tries:
                    what = f"{self.base}{remote}: {again}, {failures} times in a row"
                    raise (UnreachableError if again.silent and not furthest else WorkError)(what) from None
                self._pause(failures, again)
                continue
            except OSError as error:
                raise WorkError(f"{remote} cannot be written: {error.strerror}; the same command resumes") from None
            if digest is None or part.digest() == digest:
                return
            wrong += 1
            if wrong > 1:
                raise WorkError(
                    f"{remote} came twice with a SHA-256 that differs from SHA256SUMS.txt"
                    f" ({part.digest()[:12]}..., wanted {digest[:12]}...): the archive or what lies between is damaged"
                )
            report(-part.size)
            part.restart()
            furthest = failures = 0

    def _pause(self, failures: int, again: _Again) -> None:
        seconds = min(60.0, 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)
        if again.wait is not None:
            if again.wait > LONGEST_WAIT:
                raise RefusedError(
                    f"{self.host} asks to be left alone for {again.wait:.0f} s; type the same command then"
                )
            seconds = again.wait + random.uniform(0.0, 0.5)
            self._not_before = max(self._not_before, time.monotonic() + seconds)
        self._wait(seconds)

    def _transfer(self, remote: str, part: Part, room: Callable[[], int], report: Callable[[int], None]) -> None:
        """Ask for what is missing, once, and append it. Raises _Again where another try may help."""
        if (held := self._not_before - time.monotonic()) > 0:
            self._wait(held)
        if self.stop.is_set():
            raise StoppedError("stopped")
        headers = {"Range": f"bytes={part.size}-"} if part.size else {}
        answered = False
        try:
            with self._session().get(
                self.base + quote(remote), headers=headers, stream=True, timeout=TIMEOUT
            ) as response:
                answered = True
                if not self._accept(remote, response, part, report):
                    return
                length = response.headers.get("Content-Length", "")
                if length.isdigit() and int(length) > room():
                    raise WorkError(
                        f"no room for {remote}: {length} bytes, {max(0, room())} free; make room and resume"
                    )
                # read1 hands out what has come; read would wait for all of a chunk, and lose it when the line is cut
                while chunk := response.raw.read1(CHUNK, decode_content=True):
                    part.append(chunk)
                    report(len(chunk))
                    if self.stop.is_set():
                        raise StoppedError("stopped")
        except requests.exceptions.SSLError as error:
            raise RefusedError(f"{self.host} cannot be trusted: {reason_of(error)}") from None
        except (requests.TooManyRedirects, requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise RefusedError(f"{self.base}{remote}: {reason_of(error)}") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _Again(reason_of(error), silent=not answered) from None

    def _accept(self, remote: str, response: requests.Response, part: Part, report: Callable[[int], None]) -> bool:
        """Judge the head of an answer; make the part ready for its body. False: there is no more to come."""
        status = response.status_code
        if self.base.startswith("https:") and not response.url.startswith("https:"):
            raise RefusedError(f"{self.host} leads from https to {response.url}, which is not taken")
        if status == 206:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if start and int(start[1]) == part.size:
                return True
        elif status == 416 and part.size:
            if response.headers.get("Content-Range") == f"bytes */{part.size}":
                return False
        elif status != 200:
            self._complain(remote, response)
        if part.size:  # the whole file comes although a part was asked for, or another part of it
            report(-part.size)
            part.restart()
        if status != 200:
            raise _Again(f"answered {status} with another range than was asked for")
        return True

    def _complain(self, remote: str, response: requests.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            login = "with the login given" if self._auth else "without a login"
            raise RefusedError(
                f"{self.host} refuses {remote} {login} (HTTP {status}); sign its terms on its web page, then give your"
                f" login in ~/.netrc (machine {self.host} login NAME password ..., chmod 600),"
                f" or in {USER} and {PASSWORD}"
            )
        if status in _BUSY:
            raise _Again(f"HTTP {status} {response.reason}", retry_after(response.headers.get("Retry-After")))
        raise WorkError(f"{self.base}{remote}: HTTP {status} {response.reason}")


def retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None where it says nothing."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def reason_of(error: BaseException) -> str:
    """Return the innermost reason of what `requests` raises, on one line, without addresses of objects."""
    inner: object = error
    for _ in range(8):
        causes = (getattr(inner, "reason", None), *getattr(inner, "args", ()))
        deeper = next((cause for cause in causes if isinstance(cause, Exception)), None)
        if deeper is None:
            break
        inner = deeper
    text = re.sub(r"<[^>]*>:? ?|\w+Pool\([^)]*\): ?", "", " ".join(str(inner).split()))
    return text[:160] or type(inner).__name__
