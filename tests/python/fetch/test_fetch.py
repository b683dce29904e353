"""Fetching, against an archive that misbehaves. Nothing here leaves this machine, and no wait is real."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from archive_server import Archive, sums_of

from data_prep.errors import WorkError
from data_prep.fetch import fetch, is_there
from data_prep.fetch_http import Client, RefusedError, UnreachableError, retry_after
from data_prep.fetch_store import JOURNAL, STATE, Store, state_of
from ecg_train.errors import UserError

NEEDED = ("hea", "dat", "atr")


class Waits(list):
    """A wait that notes its seconds and is over."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def bring(entry, tmp_path: Path, waits: Waits | None = None, **options) -> int:
    client = Client(entry.base(), wait=Waits() if waits is None else waits)
    return fetch(entry, tmp_path, client=client, **options)


def check(folder: Path, files: dict[str, bytes]) -> None:
    """The folder holds these files, byte for byte, and nothing half-done."""
    for path, content in files.items():
        assert (folder / path).read_bytes() == content, path
    assert not list(folder.rglob("*.part"))
    assert state_of(folder)["complete"] is True


def needed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path == "RECORDS" or path.endswith(NEEDED)}


def cut(share: float):
    """A trick: the first answer ends in the middle of the body."""

    def trick(handler, content: bytes, nth: int) -> bool:
        if nth:
            return False
        handler.answer(200, content[: int(len(content) * share)], length=len(content))
        return True

    return trick


def test_what_is_needed_comes_whole_and_the_rest_stays(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    assert bring(entry(server), tmp_path) == 10
    check(tmp_path / "mitdb", needed(recordings))
    assert not (tmp_path / "mitdb/index.html").exists()
    assert not (tmp_path / "mitdb/doc").exists()
    assert {headers["User-Agent"].split("/")[0] for _, _, headers in server.requests} == {"ecg-train"}


def test_a_second_call_asks_for_the_list_alone(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    bring(entry(server), tmp_path)
    before = len(server.requests)
    bring(entry(server), tmp_path)
    assert [path for _, path, _ in server.requests[before:]] == ["SHA256SUMS.txt"]


def test_a_cut_connection_is_resumed_where_it_ended(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.tricks["100.dat"] = cut(0.5)
    waits = Waits()
    bring(entry(server), tmp_path, waits)
    check(tmp_path / "mitdb", needed(recordings))
    first, second = server.got("100.dat")
    assert "Range" not in first
    start = int(second["Range"].removeprefix("bytes=").rstrip("-"))
    assert 0 < start <= len(recordings["100.dat"]) // 2
    assert len(waits) == 1


def test_without_ranges_a_cut_file_starts_anew(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.ranges = False
    server.tricks["100.dat"] = cut(0.5)
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert len(server.got("100.dat")) == 2


def test_a_server_that_always_cuts_is_followed_as_long_as_it_gives_something(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    step = len(recordings["100.dat"]) // 20 + 1

    def trick(handler, content: bytes, nth: int) -> bool:
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        span = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        rest = len(content) - start
        handler.answer(206 if start else 200, content[start : start + step], span, None if rest <= step else rest)
        return True

    server.tricks["100.dat"] = trick
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert len(server.got("100.dat")) == 20


def test_a_server_that_cuts_at_the_same_place_is_given_up(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.ranges = False
    server.tricks["100.dat"] = lambda handler, content, nth: handler.answer(200, content[:5000], length=9999) or True
    with pytest.raises(WorkError, match=r"1 files are missing.*100\.dat"):
        bring(entry(server), tmp_path)
    assert len(server.got("100.dat")) == 6
    assert (tmp_path / "mitdb/101.dat").is_file()


@pytest.mark.parametrize("length", [-100, 100])
def test_a_wrong_content_length_is_seen(archive, entry, recordings, tmp_path, length):
    """Too long: the rest is asked for, and there is none. Too short: the digest is wrong, the next answer right."""
    server = archive(recordings)

    def trick(handler, content: bytes, nth: int) -> bool:
        if nth == 0:
            handler.answer(200, content, length=len(content) + length)
        return nth == 0

    server.tricks["101.dat"] = trick
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_a_wrong_digest_is_fetched_once_more(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.tricks["100.dat"] = lambda handler, content, nth: nth == 0 and (handler.answer(200, content[::-1]) or True)
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert len(server.got("100.dat")) == 2


def test_a_digest_that_is_wrong_twice_is_an_error_that_names_the_file(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.tricks["100.dat"] = lambda handler, content, nth: handler.answer(200, content[::-1]) or True
    with pytest.raises(WorkError, match=r"100\.dat came twice with a SHA-256 that differs"):
        bring(entry(server), tmp_path)
    assert len(server.got("100.dat")) == 2
    assert not (tmp_path / "mitdb/100.dat").exists()
    assert not is_there(tmp_path / "mitdb", None)
    server.tricks.clear()
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_a_missing_file_is_named_and_the_others_come(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    del server.files["101.dat"]
    with pytest.raises(WorkError, match=r"1 files are missing.*101\.dat: HTTP 404"):
        bring(entry(server), tmp_path)
    assert len(server.got("101.dat")) == 1
    assert (tmp_path / "mitdb/102.dat").read_bytes() == recordings["102.dat"]


@pytest.mark.parametrize(("header", "least"), [("7", 7.0), ("", 0.4), ("nonsense", 0.4)])
def test_a_busy_server_is_given_the_time_it_asks_for(archive, entry, recordings, tmp_path, header, least):
    server = archive(recordings)
    headers = {"Retry-After": header} if header else {}
    server.tricks["100.dat"] = lambda handler, content, nth: nth < 2 and (handler.answer(503, b"", headers) or True)
    waits = Waits()
    bring(entry(server), tmp_path, waits, connections=1)
    check(tmp_path / "mitdb", needed(recordings))
    assert max(waits) >= least
    assert len(waits) >= 2


def test_a_server_that_asks_for_an_hour_is_left_alone(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.everywhere = lambda handler, content, nth: handler.answer(429, b"", {"Retry-After": "3600"}) or True
    with pytest.raises(WorkError, match="left alone for 3600 s"):
        bring(entry(server), tmp_path, connections=1)
    assert sum(method == "GET" for method, _, _ in server.requests) == 2


def test_retry_after_may_be_a_date():
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("Wed, 21 Oct 2065 07:28:00 GMT") > 1e8
    assert retry_after(None) is None
    assert retry_after("soon") is None


def test_a_server_that_stays_broken_is_given_up(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    server.tricks["SHA256SUMS.txt"] = lambda handler, content, nth: handler.answer(500, b"") or True
    waits = Waits()
    with pytest.raises(WorkError, match="HTTP 500"):
        bring(entry(server), tmp_path, waits)
    assert len(waits) == 5
    assert waits[-1] > waits[0]


def test_a_slow_server_is_waited_for(archive, entry, recordings, tmp_path):
    """The body comes in small pieces, each after the one before was sent."""
    server = archive(recordings)

    def trick(handler, content: bytes, nth: int) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        for start in range(0, len(content), 7):
            handler.wfile.write(content[start : start + 7])
            handler.wfile.flush()
        return True

    server.tricks["100.hea"] = trick
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_redirects_are_followed_and_a_ring_of_them_is_not(archive, entry, recordings, tmp_path):
    other = archive(recordings)
    server = archive(recordings)
    server.tricks["100.dat"] = lambda handler, content, nth: (
        handler.answer(302, b"", {"Location": other.base + "100.dat"}) or True
    )
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert len(other.got("100.dat")) == 1
    server.tricks["101.dat"] = lambda handler, content, nth: handler.answer(302, b"", {"Location": "/101.dat"}) or True
    with pytest.raises(WorkError, match="redirects"):
        bring(entry(server), tmp_path / "second")


def test_no_more_connections_than_allowed(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    meeting = threading.Barrier(3)

    def together(handler, content: bytes, nth: int) -> bool:
        if content is not None and len(content) > 10_000:
            meeting.wait(timeout=20)  # three are here at once: fewer would hang, more are counted below
        return False

    server.everywhere = together
    bring(entry(server), tmp_path, connections=3)
    assert server.most_active == 3


def test_a_killed_fetch_goes_on_with_the_bytes_that_it_has(archive, entry, recordings, tmp_path):
    """What a kill leaves: a part, a file that the journal does not know, a journal line that was cut."""
    server = archive(recordings)
    bring(entry(server), tmp_path)
    folder = tmp_path / "mitdb"
    (folder / "100.dat").unlink()
    (folder / "100.dat.part").write_bytes(recordings["100.dat"][:4000])
    journal = (folder / JOURNAL).read_text().splitlines(keepends=True)
    (folder / JOURNAL).write_text("".join(journal[:-4]) + journal[-3][:30])
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"complete": False}))
    server.requests.clear()
    assert not is_there(folder, None)
    bring(entry(server), tmp_path)
    check(folder, needed(recordings))
    assert [path for method, path, _ in server.requests if method == "GET"] == ["SHA256SUMS.txt", "100.dat"]
    assert server.got("100.dat")[0]["Range"] == "bytes=4000-"


def test_a_part_that_is_whole_is_not_fetched_again(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    (tmp_path / "mitdb").mkdir()
    (tmp_path / "mitdb/100.dat.part").write_bytes(recordings["100.dat"])
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert not server.got("100.dat")


@pytest.mark.parametrize("rubbish", [b"x" * 4000, b"x" * 5_000_000])
def test_a_part_of_something_else_is_thrown_away(archive, entry, recordings, tmp_path, rubbish):
    server = archive(recordings)
    (tmp_path / "mitdb").mkdir()
    (tmp_path / "mitdb/100.dat.part").write_bytes(rubbish)
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_a_file_that_was_changed_is_fetched_again(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    bring(entry(server), tmp_path)
    (tmp_path / "mitdb/100.dat").write_bytes(b"changed")
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_a_limit_takes_whole_records_and_more_of_them_later(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    bring(entry(server), tmp_path, limit=2)
    folder = tmp_path / "mitdb"
    first = {path: content for path, content in needed(recordings).items() if not path.startswith("102")}
    check(folder, first)
    assert not (folder / "102.hea").exists()
    assert state_of(folder)["records"] == 2
    assert is_there(folder, 2)
    assert not is_there(folder, 3)
    assert not is_there(folder, None)
    server.requests.clear()
    bring(entry(server), tmp_path)
    check(folder, needed(recordings))
    assert {path[:3] for method, path, _ in server.requests if method == "GET"} == {"SHA", "102"}


def test_a_subfolder_of_an_archive_lands_without_its_path(archive, entry, recordings, tmp_path):
    files = {f"training/georgia/g1/{path}": content for path, content in recordings.items()}
    server = archive(files | {"training/ningbo/g1/9.hea": b"other", "training/ningbo/g1/9.dat": b"other"})
    bring(entry(server, folder="training/georgia", name="georgia"), tmp_path)
    check(tmp_path / "georgia", {f"g1/{path}": content for path, content in needed(recordings).items()})
    assert not (tmp_path / "georgia/training").exists()


def test_without_a_list_of_digests_nothing_is_fetched(archive, entry, recordings, tmp_path):
    server = archive(recordings, sums=False)
    with pytest.raises(WorkError, match=r"without SHA256SUMS\.txt nothing can be verified"):
        bring(entry(server), tmp_path)
    assert {path for _, path, _ in server.requests} == {"SHA256SUMS.txt"}


@pytest.mark.parametrize(
    ("listing", "what"),
    [
        (b"<!DOCTYPE html><title>Login</title>\n", "a login"),
        (b"abc 100.hea\n", "line 1"),
        (b"\xff\xfe\x00\n", "not text"),
        (b"", "no WFDB header"),
    ],
)
def test_a_list_that_is_none_is_refused(archive, entry, recordings, tmp_path, listing, what):
    server = archive(recordings)
    server.files["SHA256SUMS.txt"] = listing
    with pytest.raises(WorkError, match=what):
        bring(entry(server), tmp_path)


@pytest.mark.parametrize("path", ["../evil.hea", "/etc/evil.hea", "a/../../evil.hea", "a//evil.hea", "a\\..\\evil.hea"])
def test_a_path_that_leaves_the_folder_is_refused(archive, entry, recordings, tmp_path, path):
    server = archive(recordings)
    server.files["SHA256SUMS.txt"] += sums_of({path: b"evil"})
    server.files[path] = b"evil"
    with pytest.raises(WorkError, match="does not stay below its folder; nothing was fetched"):
        bring(entry(server), tmp_path)
    assert not list(tmp_path.rglob("evil*"))
    assert not (tmp_path / "mitdb/100.hea").exists()


def test_lists_that_contradict_themselves_are_refused(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    good = server.files["SHA256SUMS.txt"]
    server.files["SHA256SUMS.txt"] = good + sums_of({"100.hea": b"another"})
    with pytest.raises(WorkError, match="twice, with two digests"):
        bring(entry(server), tmp_path)
    server.files["SHA256SUMS.txt"] = good + sums_of({"100.hea/x.hea": b"another"})
    with pytest.raises(WorkError, match="both as a file and as a folder"):
        bring(entry(server), tmp_path)


def test_links_in_the_target_are_not_followed(archive, entry, recordings, tmp_path):
    files = {f"a/{path}": content for path, content in recordings.items()}
    server = archive(files)
    outside = tmp_path / "outside"
    outside.mkdir()
    raw = tmp_path / "raw"
    (raw / "mitdb").mkdir(parents=True)
    (raw / "mitdb/a").symlink_to(outside)
    with pytest.raises(WorkError, match="symbolic link"):
        bring(entry(server), raw)
    (raw / "mitdb/a").unlink()
    (raw / "mitdb/a").mkdir()
    (outside / "kept").write_bytes(b"kept")
    for name in ("100.hea", "100.dat.part"):
        (raw / "mitdb/a" / name).symlink_to(outside / "kept")
        with pytest.raises(WorkError):
            bring(entry(server), raw)
        (raw / "mitdb/a" / name).unlink()
    assert (outside / "kept").read_bytes() == b"kept"
    assert [path.name for path in outside.iterdir()] == ["kept"]
    (tmp_path / "second").mkdir()
    (tmp_path / "second/mitdb").symlink_to(outside)
    with pytest.raises(UserError, match="symbolic link"):
        bring(entry(server), tmp_path / "second")


def test_too_little_room_is_said_before_anything_is_fetched(archive, entry, recordings, tmp_path, monkeypatch):
    server = archive(recordings)
    monkeypatch.setattr(Store, "room", lambda self: 10_000)
    with pytest.raises(WorkError, match=r"wants about .* more, .* has room for 10\.0 KB.*LIMIT="):
        bring(entry(server), tmp_path)
    assert [path for method, path, _ in server.requests if method == "GET"] == ["SHA256SUMS.txt"]
    assert any(method == "HEAD" for method, _, _ in server.requests)


def test_room_is_watched_where_the_server_states_no_sizes(archive, entry, recordings, tmp_path, monkeypatch):
    server = archive(recordings)
    server.head = False
    monkeypatch.setattr(Store, "room", lambda self: 10_000)
    with pytest.raises(WorkError, match=r"no room for 10\d\.dat"):
        bring(entry(server), tmp_path)
    monkeypatch.undo()
    monkeypatch.setenv("NETRC", "/nowhere")
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))


def test_terms_are_accepted_by_name_before_anything_is_asked(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    closed = entry(server, access="non-commercial", licence="CC BY-NC-SA 4.0")
    for accepted in ((), ("ptbxl",), ("yes",)):
        with pytest.raises(UserError, match=r"non-commercial.*CC BY-NC-SA 4\.0.*ACCEPT_LICENSE=mitdb"):
            bring(closed, tmp_path, accepted=accepted)
    assert not server.requests
    assert not (tmp_path / "mitdb").exists()
    bring(closed, tmp_path, accepted=("mitdb",))
    check(tmp_path / "mitdb", needed(recordings))


def locked(server: Archive) -> None:
    """Let the archive want the login someone:secret."""

    def trick(handler, content: bytes, nth: int) -> bool:
        if handler.headers.get("Authorization") == "Basic c29tZW9uZTpzZWNyZXQ=":
            return False
        handler.answer(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
        return True

    server.everywhere = server.tricks["SHA256SUMS.txt"] = trick


def test_without_a_login_the_archive_says_where_it_goes(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    locked(server)
    with pytest.raises(RefusedError, match=r"HTTP 401.*\.netrc.*ECG_ARCHIVE_USER"):
        bring(entry(server), tmp_path)
    assert len(server.requests) == 1


def test_the_login_of_the_environment_reaches_the_archive_and_no_message(
    archive, entry, recordings, tmp_path, monkeypatch, capfd
):
    server = archive(recordings)
    locked(server)
    monkeypatch.setenv("ECG_ARCHIVE_USER", "someone")
    monkeypatch.setenv("ECG_ARCHIVE_PASSWORD", "wrong-secret")
    with pytest.raises(RefusedError) as caught:
        bring(entry(server), tmp_path)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("ECG_ARCHIVE_PASSWORD", "secret")
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    out, err = capfd.readouterr()
    assert "secret" not in out + err
    written = b"".join(path.read_bytes() for path in (tmp_path / "mitdb").glob(".fetch*"))
    assert b"secret" not in written


def test_the_login_of_netrc_reaches_the_archive_and_no_other_host(archive, entry, recordings, tmp_path, monkeypatch):
    server, other = archive(recordings), archive(recordings)
    locked(server)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    elsewhere = other.base.replace("127.0.0.1", "localhost") + "100.hea"
    allowed = server.everywhere
    server.tricks["100.hea"] = lambda handler, content, nth: (
        allowed(handler, content, nth) or handler.answer(302, b"", {"Location": elsewhere}) or True
    )
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert "Authorization" not in other.got("100.hea")[0]


def test_half_a_login_and_a_login_in_clear_are_refused(monkeypatch):
    monkeypatch.setenv("ECG_ARCHIVE_USER", "someone")
    with pytest.raises(UserError, match="only one of"):
        Client("https://archive.test/")
    monkeypatch.setenv("ECG_ARCHIVE_PASSWORD", "secret")
    with pytest.raises(UserError, match="not https") as caught:
        Client("http://archive.test/")
    assert "secret" not in str(caught.value)


def test_a_proxy_is_used_and_no_proxy_is_respected(archive, entry, recordings, tmp_path, monkeypatch):
    """The proxy is a server that sees whole addresses; the archive's own name does not exist."""
    proxy = archive(recordings)
    far = entry(proxy, address="http://archive.invalid/")
    monkeypatch.setenv("http_proxy", proxy.base)
    bring(far, tmp_path)
    check(tmp_path / "mitdb", needed(recordings))
    assert {headers["Host"] for _, _, headers in proxy.requests} == {"archive.invalid"}
    monkeypatch.setenv("no_proxy", "archive.invalid")
    with pytest.raises(WorkError, match=r"archive\.invalid"):
        bring(far, tmp_path / "second")


def test_an_offline_node_says_what_to_type_on_the_login_node(archive, entry, recordings, tmp_path, monkeypatch):
    server = archive(recordings)
    server.close()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("ECG_ROOT", "/home/me/ecg train")
    closed = entry(server, access="credentialed", address=server.base)
    with pytest.raises(WorkError) as caught:
        bring(closed, tmp_path, limit=5, accepted=("mitdb",))
    wanted = (
        "fetch on the login node: cd '/home/me/ecg train' && make data DATASET=mitdb FETCH=only"
        f" ECG_RAW={tmp_path} LIMIT=5 ACCEPT_LICENSE=mitdb"
    )
    assert str(caught.value).endswith(wanted)
    assert "compute node" in str(caught.value)


def test_a_name_that_does_not_resolve_is_unreachable(tmp_path):
    with Store(tmp_path / "x") as store:
        descriptor, _ = store.open_part("a")
        with pytest.raises(UnreachableError, match=r"archive\.invalid"):
            Client("http://archive.invalid/", wait=Waits()).download("a", descriptor, None, store.room)
        os.close(descriptor)


def test_two_fetches_of_one_folder_do_not_meet(archive, entry, recordings, tmp_path):
    server = archive(recordings)
    with Store(tmp_path / "mitdb"), pytest.raises(UserError, match="another fetch"):
        bring(entry(server), tmp_path)


def test_a_folder_of_ones_own_is_left_alone(tmp_path):
    folder = tmp_path / "mitdb"
    assert not is_there(folder, None)
    folder.mkdir()
    assert not is_there(folder, None)
    (folder / ".fetch.lock").touch()
    assert not is_there(folder, None)
    (folder / "100.hea").touch()
    assert is_there(folder, None)
    (folder / STATE).write_text("cut o")
    assert not is_there(folder, None)


def test_names_of_files_may_hold_blanks_and_signs(archive, entry, tmp_path):
    files = {"a b/x#1?.hea": b"1", "a b/x#1?.dat": b"22", "100%.hea": b"3"}
    server = archive(files)
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", files)


def test_the_list_may_have_upper_case_digests_stars_and_single_blanks(archive, entry, tmp_path):
    files = {"1.hea": b"1", "2.hea": b"2", "3.hea": b"3"}
    server = archive(files)
    one, two, three = (hashlib.sha256(content).hexdigest() for content in files.values())
    server.files["SHA256SUMS.txt"] = f"{one} 1.hea\r\n{two.upper()} *2.hea\n\n{three}  ./3.hea".encode()
    bring(entry(server), tmp_path)
    check(tmp_path / "mitdb", files)
