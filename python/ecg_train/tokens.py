"""Turn ECG samples into tokens and back: the vocabulary that every shard and every model shares.

A lead is the sequence ``BEGIN, lead id, samples..., END``. A sample x (any unit) of a record with the robust
amplitude s (same unit, see data_prep.dsp.amplitude) becomes

    token(x) = 64 + clip(floor((x / s + SPAN) / WIDTH), 0, 959),     WIDTH = 2 * SPAN / 960
    x(token) = s * ((token - 64 + 0.5) * WIDTH - SPAN)

so the 960 bins of equal width cover [-SPAN, SPAN) amplitudes, zero lies on an edge between two bins, and decoding
returns x within half a bin (s * WIDTH / 2) wherever |x| <= s * SPAN. Outside, the outermost bin stands. A missing
sample (NaN) is GAP, and GAP decodes to NaN.
"""

from __future__ import annotations

import re

import numpy as np

VOCAB_SIZE = 1024
RESERVED = 64
BINS = VOCAB_SIZE - RESERVED
PAD, BEGIN, END, GAP, OTHER = range(5)
FIRST_LEAD = 5
# Bins reach SPAN times the typical peak of a record: ectopic beats are two or three times as high as normal ones.
SPAN = 5.0
WIDTH = 2.0 * SPAN / BINS

# Order is part of the format: append only, never sort. Room for RESERVED - FIRST_LEAD names.
LEADS = (
    *("I", "II", "III", "aVR", "aVL", "aVF"),
    *("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9"),
    *("V3R", "V4R", "V5R", "V6R"),
    "V",  # a chest lead of unknown place, as bedside monitors write it
    *("MLI", "MLII", "MLIII", "MV1", "MV2", "MV3", "MV4", "MV5", "MV6"),
    *("MCL1", "MCL5", "MCL6", "CM1", "CM2", "CM4", "CM5", "CC5", "ML5"),
    *("X", "Y", "Z"),  # Frank
    *("ES", "AS", "AI"),  # EASI
)
LEAD_ID = {name: FIRST_LEAD + i for i, name in enumerate(LEADS)}

_ROMAN = {"1": "I", "2": "II", "3": "III"}
_NOISE = re.compile(r"\([^)]*\)|\[[^]]*\]|[\s_.:,/-]+")
# Words around a lead's name that say nothing about which lead it is.
_PREFIX = re.compile(r"^(mdc)?(ecg|ekg)?(lead|channel|derivation)?(ecg|ekg)?")
_SUFFIX = re.compile(r"(unfiltered|filtered|raw|clean|lead|ecg|ekg)+$")
_BY_SPELLING = {name.lower(): name for name in LEADS}
# A bare number is a channel, "lead 2" is a lead.
_BY_SPELLING |= {f"{word}{d}": n for word in ("lead", "ecglead", "mdcecglead") for d, n in _ROMAN.items()}
for _stem in ("d", "l"):
    _BY_SPELLING |= {f"{_stem}{form}".lower(): n for d, n in _ROMAN.items() for form in (d, n)}
_BY_SPELLING |= {f"ml{digit}": f"ML{name}" for digit, name in _ROMAN.items()}
_BY_SPELLING |= {f"mod{name.lower()}": f"ML{name}" for name in _ROMAN.values()}
_BY_SPELLING |= {f"modlead{name.lower()}": f"ML{name}" for name in _ROMAN.values()}
_BY_SPELLING |= {f"modifiedlead{name.lower()}": f"ML{name}" for name in _ROMAN.values()}
_BY_SPELLING |= {f"modv{i}": f"MV{i}" for i in range(1, 7)} | {f"v{i}mod": f"MV{i}" for i in range(1, 7)}
_BY_SPELLING |= {f"c{i}": f"V{i}" for i in range(1, 10)} | {f"c{i}r": f"V{i}R" for i in range(3, 7)}
_BY_SPELLING |= {f"rv{i}": f"V{i}R" for i in range(3, 7)}
_BY_SPELLING |= {"lara": "I", "llra": "II", "llla": "III", "vx": "X", "vy": "Y", "vz": "Z"}
_BY_SPELLING |= {"vr": "aVR", "vl": "aVL", "vf": "aVF"}


def canonical_lead(name: str | None) -> str | None:
    """Return the vocabulary's spelling of a lead name, or None where it names no lead that we know.

    Case, blanks, punctuation and words such as "ECG" or "lead" around the name do not matter:
    "II", "ii", "Lead II", "ECG_LEAD_2" and "DII" are one lead.
    """
    text = _NOISE.sub("", name or "").lower()
    for candidate in (text, _PREFIX.sub("", text), _SUFFIX.sub("", _PREFIX.sub("", text))):
        if candidate in _BY_SPELLING:
            return _BY_SPELLING[candidate]
    return None


def lead_token(name: str | None) -> int:
    """Return the token id of a lead name in any spelling; OTHER for a name that we do not know."""
    return LEAD_ID.get(canonical_lead(name) or "", OTHER)


def encode(samples: np.ndarray, scale: float, out: np.ndarray | None = None) -> np.ndarray:
    """Quantise samples (n,) of one lead, in the unit of scale, to tokens (n,) uint16; NaN becomes GAP."""
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be a positive finite number, got {scale!r}")
    samples = np.asarray(samples)
    dtype = samples.dtype if samples.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    with np.errstate(over="ignore"):  # infinity is clipped like any large value
        level = np.multiply(samples, 1.0 / (scale * WIDTH), dtype=dtype)
    level += RESERVED + SPAN / WIDTH
    # The last float below 1024, so that cutting off the fraction gives 1023. NaN passes through clip.
    np.clip(level, RESERVED, np.nextafter(dtype.type(VOCAB_SIZE), dtype.type(0)), out=level)
    gap = np.isnan(level)
    has_gap = gap.any()
    if has_gap:
        level[gap] = 0
    if out is None:
        out = np.empty(samples.shape, np.uint16)
    np.copyto(out, level, casting="unsafe")
    if has_gap:
        out[gap] = GAP
    return out


def decode(tokens: np.ndarray, scale: float) -> np.ndarray:
    """Return the middle of each token's bin (n,) float64 in the unit of scale; reserved ids give NaN."""
    tokens = np.asarray(tokens)
    samples = (tokens.astype(np.float64) - (RESERVED - 0.5)) * (WIDTH * scale) - SPAN * scale
    samples[(tokens < RESERVED) | (tokens >= VOCAB_SIZE)] = np.nan
    return samples


def clipped(tokens: np.ndarray) -> int:
    """Count the samples in the two outermost bins: what may lie outside the range."""
    return int(np.count_nonzero(tokens == RESERVED) + np.count_nonzero(tokens == VOCAB_SIZE - 1))


def entropy(histogram: np.ndarray) -> float | None:
    """Return the unigram entropy in nats, -sum p ln p, of token counts; None when there are none."""
    counts = np.asarray(histogram, np.float64)
    counts = counts[counts > 0]
    if not counts.size:
        return None
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum()) + 0.0


def describe() -> dict:
    """Return the tokenizer's entry for a manifest: all that decoding needs beside a record's scale."""
    return {
        "name": "amplitude",
        "vocab_size": VOCAB_SIZE,
        "reserved": RESERVED,
        "bins": BINS,
        "span": SPAN,
        "pad": PAD,
        "begin": BEGIN,
        "end": END,
        "gap": GAP,
        "other": OTHER,
        "leads": LEAD_ID,
    }
