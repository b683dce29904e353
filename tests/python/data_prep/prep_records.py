"""Small genuine WFDB records, written without the wfdb package."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def beats(seconds: float, rate: float, seed: int = 0, height: float = 1.0) -> np.ndarray:
    """Return something with the shape of an ECG, millivolt (n,): a narrow bump every 0.8 s, wander and noise."""
    t = np.arange(int(seconds * rate)) / rate
    rng = np.random.default_rng(seed)
    bump = height * np.exp(-(((t % 0.8) - 0.4) ** 2) / (2 * 0.012**2))
    return bump + 0.1 * np.sin(2 * np.pi * 0.2 * t) + 0.01 * rng.standard_normal(len(t))


def write_record(
    folder: Path,
    name: str,
    signals: list[np.ndarray],
    rate: str = "250",
    leads: list[str] | None = None,
    gain: float = 1000.0,
    baseline: int = 0,
    units: str = "mV",
    dat: str | None = None,
) -> Path:
    """Write signals (millivolt, equal lengths, NaN for missing) as a record in format 16; return its header."""
    folder.mkdir(parents=True, exist_ok=True)
    dat = dat or f"{name}.dat"
    steps = np.round(np.stack(signals, 1) * gain + baseline)
    np.where(np.isnan(steps), -32768, steps).astype("<i2").tofile(folder / dat)
    lines = [f"{name} {len(signals)} {rate} {len(signals[0])}"]
    for i in range(len(signals)):
        lead = leads[i] if leads else ("II", "V1", "V5", "I")[i]
        lines.append(f"{dat} 16 {gain:g}({baseline})/{units} 16 0 0 0 0 {lead}")
    header = folder / f"{name}.hea"
    header.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return header


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return the published files of a shard set: name -> contents."""
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith(".")}
