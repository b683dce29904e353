"""The formulas of the report, each a pure function of numbers.

Names: p workers, p0 workers of the baseline, T seconds of one step, S speedup, E efficiency. Nothing here
knows of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
BOOTSTRAP_SEED = 20240229
TREND_P = 0.01
TREND_SHARE = 0.02  # a drift of less than this share of the median over the window is not worth a flag


def throughput(tokens_per_step: float, step_time: float) -> float:
    """Return tokens/s of one optimizer step of `step_time` seconds."""
    return tokens_per_step / step_time


def speedup(throughput_p: float, throughput_0: float) -> float:
    """Return S(p) = throughput(p) / throughput(p0). In strong scaling, where both do the same work, it is T_0
    / T_p.
    """
    return throughput_p / throughput_0


def efficiency(s: float, p: int, p0: int) -> float:
    """Return S(p) / (p / p0): 1 where the throughput grows with the workers, also when p0 is not 1."""
    return s / (p / p0)


def overhead(p: int, time_p: float, work_p: float, p0: int, time_0: float, work_0: float) -> float:
    """Return the extra worker-seconds per unit of work, as a share of the baseline's.

    For equal work and p0 = 1 this is (p * T_p - T_1) / T_1, the total overhead of Grama, Gupta, Karypis &
    Kumar, Introduction to Parallel Computing (2003), section 5.2.1, over T_1. In weak scaling the work
    (tokens per step) grows, so the worker-seconds are counted per token; it is then T_p / T_1 - 1. In both
    cases it equals 1 / E - 1.
    """
    cost_p, cost_0 = p * time_p / work_p, p0 * time_0 / work_0
    return (cost_p - cost_0) / cost_0


def karp_flatt(s: float, p: int) -> float | None:
    """Return the experimentally determined serial fraction (1/S - 1/p) / (1 - 1/p).

    A. H. Karp, H. P. Flatt: Measuring parallel processor performance, CACM 33(5), 1990. It asks for a speedup
    over one worker; None for p = 1, where it is not defined.
    """
    return None if p < 2 else (1 / s - 1 / p) / (1 - 1 / p)


def amdahl_speedup(serial: float, p: float) -> float:
    """Return 1 / (f + (1 - f) / p) for a serial fraction f of fixed work.

    G. M. Amdahl: Validity of the single processor approach to achieving large scale computing capabilities,
    AFIPS 1967.
    """
    return 1 / (serial + (1 - serial) / p)


def gustafson_speedup(serial: float, p: float) -> float:
    """Return p - f * (p - 1) for a serial fraction f of the parallel run, work growing with p.

    J. L. Gustafson: Reevaluating Amdahl's law, CACM 31(5), 1988.
    """
    return p - serial * (p - 1)


def gustafson_fraction(s: float, p: int) -> float | None:
    """Return the serial fraction (p - S) / (p - 1) that a scaled speedup shows (Gustafson 1988 solved for f)."""
    return None if p < 2 else (p - s) / (p - 1)


def model_flops(flops_per_token: float, tokens_per_second: float) -> float:
    """Return the model's FLOP/s: what the arithmetic needs, recomputation not counted."""
    return flops_per_token * tokens_per_second


def mfu(flops_per_second: float, peak_per_worker: float, workers: int) -> float:
    """Return model FLOP/s over the peak of all workers, a share (Chowdhery et al., PaLM, 2022, appendix B)."""
    return flops_per_second / (peak_per_worker * workers)


def waterfall(
    ideal: float,
    time_p: float,
    time_ideal: float,
    calibration: float | None,
    calibration_mean: float | None,
    skew: float | None,
) -> dict[str, float | None]:
    """Return where the speedup goes, in workers; ideal - (sum of the losses that are known) = measured
    speedup.

    With S = ideal * time_ideal / time_p, a part t_i of the step time that the ideal has not costs ideal * t_i
    / time_p of speedup, so the losses add up whatever their order. All times are seconds per step:
    contention        mean worker's step without exchange, less the ideal step (also smaller batches, in
                      strong scaling)
    imbalance         slowest worker's step without exchange, less the mean worker's
    data_wait         longest less shortest wait for a batch: the part that the others then wait for inside
                      the step
    exposed           step with exchange, less slowest worker's without, less data_wait; never below 0
    remainder         what is left, negative when the parts exceed the whole; everything, when there is no
                      calibration A part that was not measured is None, never 0.
    """
    left = time_p - time_ideal
    parts: dict[str, float | None] = dict.fromkeys(("contention", "imbalance", "data_wait", "exposed"))
    room = left
    if calibration is not None and calibration_mean is not None:
        parts["contention"] = calibration_mean - time_ideal
        parts["imbalance"] = calibration - calibration_mean
        room = max(0.0, time_p - calibration)
    if skew is not None:
        parts["data_wait"] = min(skew, max(0.0, room))
    if calibration is not None and calibration_mean is not None:
        parts["exposed"] = room - (parts["data_wait"] or 0.0)
    parts["remainder"] = left - math.fsum(v for v in parts.values() if v is not None)
    return {name: None if t is None else ideal * t / time_p for name, t in parts.items()}


def bootstrap(
    samples: Sequence[Sequence[float]], statistic, level: float = 0.95, seed: int = BOOTSTRAP_SEED
) -> tuple[float, float] | None:
    """Return the percentile bootstrap interval of `statistic` of the samples' medians over repeats.

    B. Efron: Bootstrap methods, Annals of Statistics 7(1), 1979. Each sample is drawn anew on its own; the
    seed is fixed, so that a report is the same every time. None when some sample has fewer than two repeats.
    With few repeats the interval is too narrow: n repeats leave the true median out with probability of about
    2 ** (1 - n).
    """
    if any(len(s) < 2 for s in samples):
        return None
    random = np.random.default_rng(seed)
    medians = []
    for sample in samples:
        values = np.asarray(sample, dtype=np.float64)
        medians.append(np.median(values[random.integers(len(values), size=(RESAMPLES, len(values)))], axis=1))
    drawn = statistic(*medians)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def verdict(interval: tuple[float, float] | None, same: float = 1.0) -> str | None:
    """Say "differs" when `same` lies outside the interval, else "cannot tell"; None without an interval."""
    if interval is None:
        return None
    return "differs" if same < interval[0] or same > interval[1] else "cannot tell"


def trend(values: np.ndarray, length: int) -> tuple[float, float] | None:
    """Return the drift over the whole window as a share of its median, and the two-sided p value.

    Theil-Sen slope (Sen 1968) and Mann-Kendall test with the correction for ties (Mann 1945, Kendall 1975),
    on values in the order of time: the steps themselves, or medians of equal stretches of them. None below 8
    values. `length` is the number of `values` that the window would hold, for the extrapolation of the slope.
    """
    n = len(values)
    if n < 8:
        return None
    i, j = np.triu_indices(n, 1)
    rise = values[j] - values[i]
    slope = float(np.median(rise / (j - i)))
    s = float(np.sign(rise).sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return 0.0, 1.0
    z = (s - math.copysign(1, s)) / math.sqrt(variance) if s else 0.0
    return slope * (length - 1) / float(np.median(values)), math.erfc(abs(z) / math.sqrt(2))


def trends(result: tuple[float, float] | None) -> bool | None:
    """Say whether a window still trends: a drift that is both significant and of a size that matters."""
    return None if result is None else result[1] < TREND_P and abs(result[0]) > TREND_SHARE
