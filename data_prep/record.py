"""Convert one record to tokens: the work of one task, without any knowledge of pools, folders and manifests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from data_prep import dsp
from data_prep.header import Refusal, load
from data_prep.reading import Lead, read_multi, read_single
from ecg_train import tokens


@dataclass(frozen=True)
class Settings:
    """What the tokens depend on beside the recording; part of the manifest and of every record's key."""

    rate: Fraction = Fraction(100)
    """Samples per second after resampling."""
    min_seconds: float = 1.0
    """Shorter records are left out."""
    max_samples: int = 1 << 30
    """More samples (all channels together) are not believed: a day of 12 leads at 1 kHz has as many."""

    def describe(self) -> dict:
        return {
            "rate_hz": float(self.rate),
            "min_seconds": self.min_seconds,
            "max_samples": self.max_samples,
            "lowpass": "kaiser-5.0, half length 10 * max(up, down)",
            "baseline": f"moving mean over {dsp.BASELINE_SECONDS:g} s, twice",
            "amplitude": f"median over leads of the median over {dsp.BLOCK_SECONDS:g} s blocks of max |x|",
        }


def convert(path: Path, root: Path, settings: Settings) -> tuple[dict, np.ndarray]:
    """Return (facts for the manifest, tokens (n,) uint16) of the record with header ``path``. Raises Refusal."""
    header = load(path)
    facts: dict = {}
    if header.multi:
        leads, lost = read_multi(path, root, header, settings.max_samples)
        facts["segments"] = len(header.segments)
        if lost:
            facts["segments_lost"] = lost
    else:
        leads = read_single(path, root, header, settings.max_samples)
    ready, dropped, seconds, rate, unsound = [], [], Fraction(0), Fraction(0), []
    for lead in leads:
        if not lead.sound:
            unsound.append(lead.name)
        seconds, rate = max(seconds, len(lead.x) / lead.rate), max(rate, lead.rate)
        reason = _useless(lead)
        if reason is None:
            done = _prepare(lead, settings.rate)
            if done.peak > 0:
                ready.append(done)
                continue
            reason = "flat"
        dropped.append({"lead": lead.name, "reason": reason})
    if seconds < settings.min_seconds:
        raise Refusal("too-short", f"{float(seconds):.3g} s, wanted {settings.min_seconds:g} s")
    if not ready:
        reason = "flat" if any(d["reason"] == "flat" for d in dropped) else "no-samples"
        raise Refusal(reason, f"{len(dropped)} ECG leads, none with a signal")
    scale = float(np.median([lead.peak for lead in ready]))
    stream = np.empty(sum(len(lead.x) + 3 for lead in ready), np.uint16)
    at, clipped, gaps = 0, 0, 0
    for lead in ready:
        end = at + 2 + len(lead.x)
        stream[at], stream[at + 1], stream[end] = tokens.BEGIN, tokens.lead_token(lead.name), tokens.END
        body = stream[at + 2 : end]
        tokens.encode(lead.x, scale / lead.step, out=body)
        if lead.missing is not None:
            body[lead.missing] = tokens.GAP
            gaps += int(lead.missing.sum())
        clipped += tokens.clipped(body)
        at = end + 1
    facts |= {
        "rate_hz": float(rate),
        "leads": [tokens.canonical_lead(lead.name) or lead.name for lead in ready],
        "scale": _digits(scale),
        "offset": [_digits(lead.zero) for lead in ready],
        "samples": max(len(lead.x) for lead in ready),
        "tokens": len(stream),
        "clipped": clipped,
        "gaps": gaps,
    }
    if dropped:
        facts["dropped"] = dropped
    if unsound:
        facts["wrong_checksum"] = unsound
    codes = [c[3:].replace(" ", "").split(",") for c in header.comments if c.startswith("Dx:")]
    if codes:
        facts["labels"] = {"dx": sorted({code for line in codes for code in line if code})}
    return facts, stream


def _digits(value: float) -> float:
    """Nine digits: exact in float32, and equal whatever the last bit of a sum was."""
    return float(f"{value:.9g}")


def _useless(lead: Lead) -> str | None:
    if lead.missing is not None and lead.missing.all():
        return "no-samples"
    seen = lead.x if lead.missing is None else lead.x[~lead.missing]
    return "flat" if seen.min() == seen.max() else None


@dataclass
class Prepared:
    """A lead at the wanted rate: x (n,) in steps of ``step`` millivolt, without its baseline."""

    name: str
    x: np.ndarray
    missing: np.ndarray | None
    step: float
    zero: float
    peak: float
    """Typical peak, millivolt."""


def _prepare(lead: Lead, wanted: Fraction) -> Prepared:
    x, missing, step = lead.x, lead.missing, abs(lead.factor)
    if lead.factor < 0:
        np.negative(x, out=x)
    factor = dsp.ratio(lead.rate, wanted)
    if missing is not None:
        dsp.fill_gaps(x, missing)
    x = dsp.resample(x, factor)
    if missing is not None:
        missing = dsp.resample_mask(missing, factor, len(x))
    moving = dsp.alive(x, float(wanted), lead.quantum)
    x = dsp.remove_baseline(x, float(wanted))
    peak = dsp.amplitude(x, missing, float(wanted), moving) * step
    return Prepared(lead.name, x, missing, step, lead.zero, peak)
