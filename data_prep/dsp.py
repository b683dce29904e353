"""Signal steps of the conversion: resample, remove the baseline, measure a record's amplitude. NumPy only, because
importing scipy.signal costs as much time as reading twenty half-hour records.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

BASELINE_SECONDS = 1.0
BLOCK_SECONDS = 2.0
# Beyond this the block matrices of resample grow large (odd ratios such as 100/999.56); scipy takes over.
_MATRIX_LIMIT = 1 << 18
_RATIO_LIMIT = 50_000


def ratio(rate: Fraction, wanted: Fraction) -> Fraction:
    """Return wanted/rate = up/down; exact unless a term exceeds 50000, else off by 2e-5 at most, as crystals are."""
    exact = wanted / rate
    if max(exact.numerator, exact.denominator) <= _RATIO_LIMIT:
        return exact
    if exact <= 1:
        return exact.limit_denominator(_RATIO_LIMIT)
    return 1 / (1 / exact).limit_denominator(_RATIO_LIMIT)


def lowpass(up: int, down: int) -> np.ndarray:
    """Return the anti-aliasing filter (2 * 10 * max(up, down) + 1,) with gain ``up``, of odd length and zero phase.

    The windowed sinc of scipy.signal.resample_poly: cut-off at the lower Nyquist frequency, Kaiser window, beta 5.
    But each of the ``up`` phases has the sum 1, where scipy's differ by 0.2 %: a constant stays a constant, and an
    offset of many millivolt does not turn into a tone.
    """
    widest = max(up, down)
    half = 10 * widest
    taps = np.sinc(np.arange(-half, half + 1) / widest) * np.kaiser(2 * half + 1, 5.0)
    phases = np.zeros((-(-len(taps) // up), up))
    phases.reshape(-1)[: len(taps)] = taps
    phases /= phases.sum(axis=0)
    return phases.reshape(-1)[: len(taps)]


@lru_cache(maxsize=8)
def _blocks(up: int, down: int) -> tuple[np.ndarray, int, int] | None:
    """Return the filter as a matrix (down, blocks * up), the first block's number, and the number of blocks.

    With x in blocks of ``down`` and y in blocks of ``up`` samples, y[b, p] = sum_j sum_m x[b + j, m] H[m, j, p] where
    H[m, j, p] = h[p * down - (j * down + m) * up + half]: one matrix product and a few shifted sums.
    """
    taps = lowpass(up, down)
    half = (len(taps) - 1) // 2
    first = -(half // up) // down
    last = (((up - 1) * down + half) // up) // down
    count = last - first + 1
    if down * count * up > _MATRIX_LIMIT:
        return None
    m = np.arange(down)[:, None, None]
    j = np.arange(first, last + 1)[None, :, None]
    p = np.arange(up)[None, None, :]
    index = p * down - (j * down + m) * up + half
    matrix = np.where((index >= 0) & (index < len(taps)), taps[np.clip(index, 0, len(taps) - 1)], 0.0)
    return matrix.reshape(down, count * up), first, count


def resample(x: np.ndarray, factor: Fraction) -> np.ndarray:
    """Return x (n,) at ``factor`` times its rate: (ceil(n * factor),), of x's dtype, float32 or float64.

    Equals scipy.signal.resample_poly(x, up, down, window=lowpass(up, down) / up) but for the ends, where the first
    and last value are held instead of a jump to zero.
    """
    up, down = factor.numerator, factor.denominator
    if up == down:
        return x
    n_out = -(-len(x) * up // down)
    made = _blocks(up, down)
    if made is None:
        return _resample_scipy(x, up, down, n_out)
    matrix, first, count = made
    n_blocks = -(-n_out // up)
    before = -first * down
    padded = np.empty((n_blocks + count - 1) * down, x.dtype)
    padded[:before] = x[0]
    end = before + len(x)
    padded[before:end] = x[: len(padded) - before]
    padded[end:] = x[-1]
    parts = padded.reshape(-1, down) @ matrix.astype(x.dtype)  # (blocks, count * up)
    y = parts[:n_blocks, :up].copy()
    for j in range(1, count):
        y += parts[j : j + n_blocks, j * up : (j + 1) * up]
    return y.reshape(-1)[:n_out]


def _resample_scipy(x: np.ndarray, up: int, down: int, n_out: int) -> np.ndarray:
    from scipy.signal import upfirdn

    taps = lowpass(up, down)
    half = (len(taps) - 1) // 2
    margin = -(-half // up)
    padded = np.concatenate([np.full(margin, x[0]), x, np.full(margin + down, x[-1])]).astype(np.float64)
    # Output i of upfirdn lies at i * down - half on the up-sampled axis; ours starts at margin * up.
    shift = (half + margin * up) % down
    skip = (half + margin * up) // down
    y = upfirdn(np.concatenate([np.zeros(down - shift if shift else 0), taps]), padded, up, down)
    skip += 1 if shift else 0
    return y[skip : skip + n_out].astype(x.dtype)


def fill_gaps(x: np.ndarray, missing: np.ndarray) -> None:
    """Join the neighbours of each gap by a straight line, in place, so that filters do not ring."""
    good = np.flatnonzero(~missing)
    x[missing] = np.interp(np.flatnonzero(missing), good, x[good])


def resample_mask(missing: np.ndarray, factor: Fraction, n_out: int) -> np.ndarray:
    """Return for each output sample whether the input sample nearest to it in time is missing."""
    nearest = (np.arange(n_out) * factor.denominator + factor.numerator // 2) // factor.numerator
    return missing[np.minimum(nearest, len(missing) - 1)]


def _moving_mean(x: np.ndarray, width: int) -> np.ndarray:
    """Return the centred mean over ``width`` (odd) samples, over those that exist near the ends. float64."""
    half = width // 2
    total = np.empty(len(x) + 1)
    total[0] = 0
    np.cumsum(x, dtype=np.float64, out=total[1:])
    if len(x) <= width:
        i = np.arange(len(x))
        low, high = np.maximum(i - half, 0), np.minimum(i + half + 1, len(x))
        return (total[high] - total[low]) / (high - low)
    mean = np.empty(len(x))
    np.subtract(total[width:], total[:-width], out=mean[half:-half])
    mean[half:-half] *= 1.0 / width
    seen = np.arange(half + 1, width)
    mean[:half] = total[half + 1 : width] / seen
    mean[-half:] = (total[-1] - total[len(x) - width + 1 : len(x) - half]) / seen[::-1]
    return mean


def remove_baseline(x: np.ndarray, rate: float) -> np.ndarray:
    """Subtract the mean over one second, taken twice (a triangle two seconds wide), from x (n,), in place.

    The gain at frequency f is 1 - sinc(f * 1 s)^2: 0.03 at 0.1 Hz, 0.6 at 0.5 Hz, at least 0.95 from 1 Hz on.
    """
    width = max(1, round(rate * BASELINE_SECONDS)) | 1
    x -= _moving_mean(_moving_mean(x, width), width)
    return x


def alive(x: np.ndarray, rate: float, step: float) -> np.ndarray:
    """Return for each whole block of two seconds of x (n,) whether it moves by more than two steps of the converter.

    To be asked before the baseline is removed, which leaves crumbs of rounding where a lead was off.
    """
    width = max(1, round(rate * BLOCK_SECONDS))
    blocks = x[: len(x) // width * width].reshape(-1, width)
    return blocks.max(axis=1) - blocks.min(axis=1) > 2.5 * step


def amplitude(x: np.ndarray, missing: np.ndarray | None, rate: float, moving: np.ndarray | None = None) -> float:
    """Return the typical peak of one lead: the median over blocks of two seconds of max |x|.

    Blocks that are flat (zero, or not ``moving``) or mostly missing do not count; where no block moves, all count
    that are not zero. 0.0 where nothing is left.
    """
    width = max(1, round(rate * BLOCK_SECONDS))
    size = np.abs(x)
    if missing is not None:
        size[missing] = 0
    if len(x) < 2 * width:
        return float(size.max(initial=0.0))
    n = len(x) // width
    peaks = size[: n * width].reshape(n, width).max(axis=1)
    use = peaks > 0
    if missing is not None:
        use &= missing[: n * width].reshape(n, width).mean(axis=1) < 0.5
    if moving is not None and (use & moving).any():
        use &= moving
    return float(np.median(peaks[use])) if use.any() else 0.0
