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
    max_samples: int = 1 << 28
    """More samples (all channels together) are not believed: 20 h of 12 leads at 300 Hz are 260 million."""

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
    seconds = max(len(lead.x) / lead.rate for lead in leads)
    if seconds < settings.min_seconds:
        raise Refusal("too-short", f"{float(seconds):.3g} s, wanted {settings.min_seconds:g} s")
    ready, dropped = [], []
    for lead in leads:
        reason = _useless(lead)
        if reason:
            dropped.append({"lead": lead.name, "reason": reason})
        else:
            ready.append(_prepare(lead, settings.rate))
    ready, late = [r for r in ready if r[3] > 0], [r for r in ready if not r[3] > 0]
    dropped += [{"lead": r[0].name, "reason": "flat"} for r in late]
    if not ready:
        reason = "flat" if any(d["reason"] == "flat" for d in dropped) else "no-samples"
        raise Refusal(reason, f"{len(dropped)} ECG leads, none with a signal")
    scale = float(np.median([peak for _, _, _, peak in ready]))
    stream = np.empty(sum(len(x) for _, x, _, _ in ready) + 3 * len(ready), np.uint16)
    at, clipped, gaps = 0, 0, 0
    for lead, x, missing, _ in ready:
        stream[at], stream[at + 1] = tokens.BEGIN, tokens.lead_token(lead.name)
        body = stream[at + 2 : at + 2 + len(x)]
        tokens.encode(x, scale / abs(lead.factor), out=body)
        if missing is not None:
            body[missing] = tokens.GAP
            gaps += int(missing.sum())
        clipped += tokens.clipped(body)
        stream[at + 2 + len(x)] = tokens.END
        at += len(x) + 3
    facts |= {
        "rate_hz": float(max(lead.rate for lead in leads)),
        "leads": [tokens.canonical_lead(r[0].name) or r[0].name for r in ready],
        "scale": _digits(scale),
        "offset": [_digits(r[0].zero) for r in ready],
        "samples": max(len(r[1]) for r in ready),
        "tokens": len(stream),
        "clipped": clipped,
        "gaps": gaps,
    }
    if dropped:
        facts["dropped"] = dropped
    return facts, stream


def _digits(value: float) -> float:
    """Nine digits: exact in float32, and equal whatever the last bit of a sum was."""
    return float(f"{value:.9g}")


def _useless(lead: Lead) -> str | None:
    if lead.missing is not None and lead.missing.all():
        return "no-samples"
    seen = lead.x if lead.missing is None else lead.x[~lead.missing]
    return "flat" if seen.min() == seen.max() else None


def _prepare(lead: Lead, wanted: Fraction) -> tuple[Lead, np.ndarray, np.ndarray | None, float]:
    """Return (lead, samples in steps of abs(lead.factor), missing or None, typical peak in mV), at the new rate."""
    x, missing = lead.x, lead.missing
    if lead.factor < 0:
        np.negative(x, out=x)
    factor = dsp.ratio(lead.rate, wanted)
    if missing is not None:
        dsp.fill_gaps(x, missing)
    x = dsp.resample(x, factor)
    if missing is not None:
        missing = dsp.resample_mask(missing, factor, len(x))
    x = dsp.remove_baseline(x, float(wanted))
    return lead, x, missing, dsp.amplitude(x, missing, float(wanted)) * abs(lead.factor)
