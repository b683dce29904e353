"""Read the ECG leads of one WFDB record through the wfdb package, as digital steps, one array per lead.

wfdb's own physical signals (float64, all channels, smoothed to one rate) cost two to three times as much time, and
its joined multi-segment records fail as a whole where one segment is missing. Here gain and zero are applied to
the few samples that are left after resampling, and a missing segment is a gap.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np

from data_prep.header import BYTES, FLAC, Header, Refusal, Signal, canonical, inside, load
from data_prep.leads import millivolts

# The value that means "missing" in each format, signal(5). Format 8 has none.
_MISSING = {"80": -(2**7), "508": -(2**7), "310": -(2**9), "311": -(2**9), "212": -(2**11)}
_MISSING |= dict.fromkeys(("16", "61", "160", "516"), -(2**15))
_MISSING |= {"24": -(2**23), "524": -(2**23), "32": -(2**31)}
_WIDE = ("24", "524", "32", "8")
SLOWEST, FASTEST = Fraction(40), Fraction(100_000)


@dataclass
class Lead:
    """Samples x (n,) of one lead; millivolt = x * factor + zero (the part of zero that x does not hold)."""

    name: str
    rate: Fraction
    x: np.ndarray
    missing: np.ndarray | None
    factor: float
    zero: float
    quantum: float = 1.0
    """Smallest step of the converter, in the unit of x."""
    sound: bool = True
    """False where the samples do not have the checksum that the header gives."""


def ecg_channels(header: Header) -> list[tuple[int, float]]:
    """Return (channel number, factor to millivolt) of the ECG channels. Raises Refusal("no-ecg-lead")."""
    found = [(i, millivolts(s.name, s.units)) for i, s in enumerate(header.signals)]
    kept = [(i, factor) for i, factor in found if factor is not None]
    if not kept:
        seen = ", ".join(f"{s.name or '?'} [{s.units or 'mV'}]" for s in header.signals[:6]) or "no signals"
        raise Refusal("no-ecg-lead", f"channels: {seen}")
    return kept


def check(header: Header, folder: Path, root: Path, max_samples: int) -> int:
    """Check a single-segment header against its files, before any memory is taken; return its frames.

    Raises Refusal: a path outside, a file missing or shorter than claimed, a size or rate that cannot be meant.
    """
    frames = header.samples
    per_file: dict[str, list[Signal]] = {}
    for s in header.signals:
        per_file.setdefault(s.file, []).append(s)
    if frames is not None and (frames < 0 or frames * sum(s.per_frame for s in header.signals) > max_samples):
        raise Refusal("implausible-size", f"the header claims {frames} samples of {len(header.signals)} signals")
    paths = {file: inside(folder, file, root) for file in per_file}
    for file, signals in per_file.items():
        try:
            size = paths[file].stat().st_size
        except OSError as error:
            raise Refusal("missing-signal-file", f"{file[:80]}: {error.strerror}") from None
        if not paths[file].is_file():
            raise Refusal("unreadable-signal", f"{file[:80]} is not a regular file")
        first = signals[0]
        width = sum(s.per_frame for s in signals)
        if not 0 < width < 4096:
            raise Refusal("implausible-size", f"{width} samples per frame in {file[:80]}")
        if first.fmt in FLAC:
            there = _flac_frames(paths[file]) // max(1, first.per_frame)
        elif first.fmt in BYTES:
            there = int((size - first.offset) / (BYTES[first.fmt] * width))
        else:
            raise Refusal("unreadable-signal", f"format {first.fmt[:20]} is not known")
        if frames is None:
            frames = there
            if frames * width > max_samples:
                raise Refusal("implausible-size", f"{file[:80]} holds {frames} frames")
        if there < frames:
            raise Refusal("truncated-signal", f"{file[:80]} holds {max(there, 0)} of {frames} samples per signal")
    return frames or 0


def _flac_frames(path: Path) -> int:
    import soundfile

    try:
        return int(soundfile.info(os.fspath(path)).frames)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Refusal("unreadable-signal", f"{path.name}: {error}") from None


def _digital(header: Header, path: Path, root: Path, frames: int, channels: list[int]) -> list[np.ndarray]:
    """Read channels as integers, each at its own rate. Raises Refusal("unreadable-signal")."""
    import wfdb

    fmts = {header.signals[c].fmt for c in channels}
    ask = {"channels": channels, "physical": False, "smooth_frames": False, "sampto": frames}
    ask["return_res"] = 64 if "61" in fmts else 32 if fmts & set(_WIDE) else 16
    try:
        # wfdb cannot name the type of big-endian samples, and where a skewed signal has several samples per frame, it
        # marks too few of those that it lacks.
        if "61" not in fmts and not any(s.skew for s in header.signals):
            return wfdb.rdrecord(os.fspath(path.with_name(path.name.removesuffix(".hea"))), **ask).e_d_signal
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - wfdb raises bare Exception, and whatever NumPy raises; try the plain header
        pass
    return _digital_again(header, path.parent, root, ask)


def _digital_again(header: Header, folder: Path, root: Path, ask: dict) -> list[np.ndarray]:
    """Read through a header of our own writing, for records whose header wfdb refuses though we understand it."""
    import wfdb

    with tempfile.TemporaryDirectory(prefix="ecg-header-") as scratch:
        files = {}
        for s in header.signals:
            if s.file not in files:
                files[s.file] = f"s{len(files)}.dat"
                os.symlink(inside(folder, s.file, root).absolute(), Path(scratch, files[s.file]))
        text = canonical(header, files)
        big_endian = ask["return_res"] == 64
        # Formats 61 and 16 differ in the order of bytes alone.
        text = text.replace(".dat 61x", ".dat 16x") if big_endian else text
        Path(scratch, "record.hea").write_text(text, encoding="ascii")
        try:
            read = wfdb.rdrecord(os.path.join(scratch, "record"), **ask).e_d_signal
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            detail = " ".join(str(error).split())[:160].replace(scratch, "")
            raise Refusal("unreadable-signal", f"{type(error).__name__}: {detail}") from None
    if big_endian:
        swap = [header.signals[c].fmt == "61" for c in ask["channels"]]
        read = [x.astype(np.int16).byteswap() if s else x for x, s in zip(read, swap, strict=True)]
    return read


def read_single(path: Path, root: Path, header: Header, max_samples: int) -> Iterator[Lead]:
    """Return the ECG leads of a record of one segment, one at a time. Raises Refusal, before the first."""
    channels = ecg_channels(header)
    frames = check(header, path.parent, root, max_samples)
    if frames == 0:
        raise Refusal("too-short", "the record has no samples")
    if any(s.skew > frames for s in header.signals):
        raise Refusal("implausible-size", "a signal is skewed by more than the record is long")
    header.samples = frames
    for c, _ in channels:
        rate = header.rate * header.signals[c].per_frame
        if not SLOWEST <= rate <= FASTEST:
            raise Refusal("implausible-rate", f"{header.signals[c].name or '?'} has {float(rate):g} samples per second")
    return _leads(header, channels, _digital(header, path, root, frames, [c for c, _ in channels]))


def _leads(header: Header, channels: list[tuple[int, float]], read: list) -> Iterator[Lead]:
    """Yield the leads one by one, and let go of each one's integers: long records are large."""
    for number, (c, unit) in enumerate(channels):
        s, x = header.signals[c], read[number]
        read[number] = None
        sound = s.checksum is None or int(x.sum(dtype=np.int64)) % (1 << 16) == s.checksum
        missing = x == _MISSING[s.fmt] if s.fmt in _MISSING else None
        if s.skew:
            x, missing = unskewed(x, missing, s.skew * s.per_frame)
        if missing is not None and not missing.any():
            missing = None
        # Steps fit in float32 up to 2^24; the level goes first, so that a large offset costs no precision.
        seen = x if missing is None else x[~missing]
        level = int(np.median(seen[:: max(1, len(seen) // 1024)])) if len(seen) else 0
        exact = np.float64 if s.fmt in _WIDE else np.float32
        steps = np.subtract(x, exact(level), dtype=exact)
        factor = unit / s.gain
        yield Lead(
            s.name, header.rate * s.per_frame, steps, missing, factor, (level - s.baseline) * factor, sound=sound
        )


def unskewed(x: np.ndarray, missing: np.ndarray | None, skew: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a signal that was written ``skew`` samples late at its own time, and what it then lacks, (n,) bool."""
    late = np.zeros_like(x)
    late[: len(x) - skew] = x[skew:]
    lacks = np.ones(len(x), bool)
    lacks[: len(x) - skew] = False if missing is None else missing[skew:]
    return late, lacks


def read_multi(path: Path, root: Path, header: Header, max_samples: int) -> tuple[list[Lead], int]:
    """Return the leads of a multi-segment record in millivolt, gaps marked, and how many segments were lost.

    A segment that is absent ("~") or cannot be read is a gap in all leads; a lead that a segment lacks is a gap there.
    Raises Refusal where no segment is left.
    """
    total = sum(length for _, length in header.segments)
    if any(length < 0 for _, length in header.segments) or total > max_samples:
        raise Refusal("implausible-size", f"the segments claim {total} samples")
    fixed = header.segments[0][1] > 0
    leads: dict[str, Lead] = {}
    lost, at, refusal = 0, 0, None
    for name, length in header.segments:
        if length and name != "~":
            try:
                seen: dict[str, int] = {}
                for number, lead in enumerate(_segment(path, root, name, length, max_samples)):
                    again = seen[lead.name] = seen.get(lead.name, -1) + 1
                    key = str(number) if fixed else f"{lead.name}\n{again}"
                    _place(leads, key, lead, at, total, header.rate, max_samples)
            except Refusal as error:
                lost, refusal = lost + 1, refusal or error
        at += length
    if not leads:
        raise refusal or Refusal("no-samples", "the record consists of gaps")
    for lead in leads.values():
        lead.zero = float(np.median(lead.x[~lead.missing])) if not lead.missing.all() else 0.0
        lead.x -= np.float32(lead.zero)
    return list(leads.values()), lost


def _segment(path: Path, root: Path, name: str, length: int, max_samples: int) -> list[Lead]:
    file = inside(path.parent, f"{name}.hea", root)
    if not file.is_file():
        raise Refusal("missing-signal-file", f"the header of segment {name[:60]} is missing")
    header = load(file)
    if header.multi:
        raise Refusal("unreadable-header", f"segment {name[:60]} has segments itself")
    if header.samples != length:
        for s in header.signals:  # of samples that will not be read, or not known to be all
            s.checksum = None
    header.samples = min(length, header.samples or length)
    return read_single(file, root, header, max_samples)


def _place(leads: dict, key: str, lead: Lead, at: int, total: int, rate: Fraction, max_samples: int) -> None:
    """Copy a segment's lead to frame ``at`` of the whole record; make the whole lead on first sight."""
    per_frame = lead.rate / rate
    if key not in leads:
        n = ceil(total * per_frame)
        if n * (len(leads) + 1) > max_samples:
            raise Refusal("implausible-size", f"{len(leads) + 1} leads of {n} samples")
        leads[key] = Lead(lead.name, lead.rate, np.zeros(n, np.float32), np.ones(n, bool), 1.0, 0.0, 0.0)
    whole = leads[key]
    whole.quantum, whole.sound = max(whole.quantum, abs(lead.factor)), whole.sound and lead.sound
    if whole.rate != lead.rate:
        raise Refusal("unreadable-signal", f"lead {lead.name[:40]} changes its rate between segments")
    start = int(at * per_frame)
    n = min(len(lead.x), len(whole.x) - start)
    whole.x[start : start + n] = lead.x[:n] * lead.factor + lead.zero
    whole.missing[start : start + n] = False if lead.missing is None else lead.missing[:n]
