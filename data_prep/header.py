"""Read a WFDB header without trusting it.

The wfdb package refuses some sound headers (a dot in the record name) and believes some unsound ones (a claim of
10^12 samples, a signal file called ../../x). So the header is parsed here first, with the checks that need no
samples; what passes goes to wfdb. Format: WFDB Applications Guide, header(5) and signal(5).
"""

from __future__ import annotations

import math
import re
import stat
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

# Every reason why a record, or a lead of it, is left out. A fixed list, so that reports can count them.
REASONS = (
    "missing-signal-file",
    "unreadable-header",
    "unreadable-signal",
    "truncated-signal",
    "no-ecg-lead",
    "flat",
    "no-samples",
    "too-short",
    "path-escapes-source",
    "implausible-size",
    "implausible-rate",
    "duplicate",
    "reader-died",
)
MAX_HEADER_BYTES = 4 << 20
# Bytes per sample of the formats whose length follows from the file's size; 508, 516 and 524 are FLAC.
BYTES = {
    **{"8": Fraction(1), "16": Fraction(2), "24": Fraction(3), "32": Fraction(4), "61": Fraction(2)},
    **{
        "80": Fraction(1),
        "160": Fraction(2),
        "212": Fraction(3, 2),
        "310": Fraction(4, 3),
        "311": Fraction(4, 3),
    },
}
FLAC = ("508", "516", "524")


class Refusal(Exception):  # noqa: N818 - not an error of ours: the record is left out, with a reason
    """Leave this record out. ``reason`` is one of REASONS, ``detail`` says what was seen."""

    def __init__(self, reason: str, detail: str):
        assert reason in REASONS, reason
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass
class Signal:
    """One signal line. Units of gain: digital steps per physical unit."""

    file: str
    fmt: str
    per_frame: int
    skew: int
    offset: int
    gain: float
    baseline: int
    units: str
    resolution: int
    zero: int
    initial: int
    checksum: int | None
    """Of the signal's samples, modulo 2^16; None where the header has none."""
    name: str


@dataclass
class Header:
    """A parsed header; ``rate`` is frames per second, ``samples`` is frames or None where the header is silent."""

    name: str
    rate: Fraction
    samples: int | None
    signals: list[Signal] = field(default_factory=list)
    segments: list[tuple[str, int]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def multi(self) -> bool:
        return bool(self.segments)


# Digits are bounded everywhere: a header must not make us compute with a number of a million digits.
_FORMAT = re.compile(r"(\d{1,6})(?:x(\d{1,9}))?(?::(\d{1,15}))?(?:\+(\d{1,15}))?$")
_GAIN = re.compile(r"([-+]?\d{0,30}\.?\d{0,30}(?:[eE][-+]?\d{1,3})?)(?:\(([-+]?\d{1,15})\))?(?:/(\S*))?$")
_RATE = re.compile(r"[-+]?\d{0,12}\.?\d{0,20}(?:[eE][-+]?\d)?")


def _number(text: str, what: str) -> Fraction:
    try:
        return Fraction(text if _RATE.fullmatch(text) else "")
    except (ValueError, ZeroDivisionError):
        raise Refusal("unreadable-header", f"{what} is {text[:40]!r}, expected a number") from None


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"[-+]?\d{1,18}", text):
        raise Refusal("unreadable-header", f"{what} is {text[:40]!r}, expected a whole number")
    return int(text)


def _signal(line: str) -> Signal:
    words = line.split(None, 8)
    if len(words) < 2:
        raise Refusal("unreadable-header", f"signal line {line[:60]!r} has no format")
    found = _FORMAT.match(words[1])
    if not found:
        raise Refusal("unreadable-header", f"signal format is {words[1][:40]!r}")
    fmt, per_frame, skew, offset = found.groups()
    gain = _GAIN.match(words[2]) if len(words) > 2 else None
    value, baseline, units = gain.groups() if gain else (None, None, None)
    ints = [0, 0, 0]  # resolution, ADC zero, initial value
    for i, word in enumerate(words[3:6]):
        ints[i] = _whole(word, "a number of the signal line")
    try:
        factor = float(value or 0)
    except ValueError:
        factor = 0.0
    return Signal(
        file=words[0],
        fmt=fmt,
        per_frame=int(per_frame or 1),
        skew=int(skew or 0),
        offset=int(offset or 0),
        gain=factor if factor and math.isfinite(factor) else 200.0,  # the standard's default
        baseline=int(baseline) if baseline is not None else ints[1],
        units=units or "",
        resolution=ints[0],
        zero=ints[1],
        initial=ints[2],
        checksum=int(words[6]) % (1 << 16) if len(words) > 6 and re.fullmatch(r"[-+]?\d{1,18}", words[6]) else None,
        name=words[8].strip() if len(words) > 8 else "",
    )


def parse(text: str) -> Header:
    """Parse a header's text. Raises Refusal("unreadable-header")."""
    lines, comments = [], []
    for line in text.lstrip("\ufeff").splitlines():
        line = line.strip().strip("\0")
        if line.startswith("#"):
            comments.append(line.lstrip("# \t"))
        elif line:
            lines.append(line)
    words = lines[0].split() if lines else []
    if len(words) < 2:
        raise Refusal("unreadable-header", "the header has no record line")
    name, _, n_segments = words[0].partition("/")
    count = _whole(words[1], "the number of signals")
    # 360, 360/720, 360/720(12) and 62.4725/999.56 are all legal: frames, counter frequency, base counter.
    rate = _number(words[2].split("/")[0].split("(")[0], "the sampling rate") if len(words) > 2 else Fraction(250)
    samples = _whole(words[3], "the number of samples") if len(words) > 3 and ":" not in words[3] else 0
    header = Header(name, rate, samples or None, comments=comments)
    if n_segments:
        wanted = _whole(n_segments, "the number of segments")
        for line in lines[1 : 1 + wanted]:
            parts = line.split()
            if len(parts) < 2:
                raise Refusal("unreadable-header", f"segment line {line[:60]!r} has no length")
            header.segments.append((parts[0], _whole(parts[1], "a segment's length")))
        if len(header.segments) != wanted or not wanted:
            raise Refusal("unreadable-header", f"{wanted} segments announced, {len(header.segments)} listed")
        return header
    if not 0 <= count <= len(lines) - 1:
        raise Refusal("unreadable-header", f"{count} signals announced, {len(lines) - 1} listed")
    header.signals = [_signal(line) for line in lines[1 : 1 + count]]
    return header


def load(path: Path) -> Header:
    """Read and parse one .hea file. Raises Refusal."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Refusal("unreadable-header", "the header is not a regular file")
        if status.st_size > MAX_HEADER_BYTES:
            raise Refusal("unreadable-header", f"the header has {status.st_size} bytes")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise Refusal("unreadable-header", error.strerror or str(error)) from None
    return parse(text)


def inside(folder: Path, file: str, root: Path) -> Path:
    """Return folder/file where its spelling stays below root. Raises Refusal("path-escapes-source").

    Looks at the spelling only: links that the user made inside the source are followed.
    """
    parts = Path(file).parts
    depth = len(folder.relative_to(root).parts)
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if Path(file).is_absolute() or depth < 1 or "\0" in file:
        raise Refusal("path-escapes-source", f"the header names the signal file {file[:80]!r}")
    return folder / file


def canonical(header: Header, files: dict[str, str]) -> str:
    """Write the header again as wfdb likes it: a plain name, and ``files`` in place of the signal files' names.

    Without skew: see reading.unskewed.
    """
    lines = [f"record {len(header.signals)} {float(header.rate)!r} {header.samples or ''}".rstrip()]
    for s in header.signals:
        shape = f"{s.fmt}x{s.per_frame}+{s.offset}"
        gain = f"{s.gain:.17g}({s.baseline})/{re.sub(r'[^A-Za-z0-9%]', '_', s.units) or 'mV'}"
        lines.append(f"{files[s.file]} {shape} {gain} {s.resolution} {s.zero} {s.initial} 0 0 signal")
    return "\n".join(lines) + "\n"
