"""Every formula of the report on known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import metrics

times = st.floats(1e-4, 1e3)


def test_throughput_and_speedup_of_equal_work_is_the_quotient_of_times():
    assert metrics.throughput(4096, 0.5) == 8192
    assert metrics.speedup(metrics.throughput(4096, 0.5), metrics.throughput(4096, 2.0)) == 4


@pytest.mark.parametrize(
    ("s", "p", "p0", "wanted"),
    [(4, 4, 1, 1.0), (3, 4, 1, 0.75), (2, 4, 2, 1.0), (1.5, 8, 4, 0.75), (1, 3, 3, 1.0)],
)
def test_efficiency_divides_by_the_ratio_of_sizes_not_by_the_size(s, p, p0, wanted):
    """A comparable tool divides by the world size, which is wrong as soon as the smallest run is not 1."""
    assert metrics.efficiency(s, p, p0) == pytest.approx(wanted)


def test_overhead_strong_is_p_tp_minus_t1_over_t1():
    p, tp, t1 = 4, 3.0, 10.0
    assert metrics.overhead(p, tp, 1024, 1, t1, 1024) == pytest.approx((p * tp - t1) / t1) == pytest.approx(0.2)


def test_overhead_weak_counts_per_token():
    assert metrics.overhead(4, 1.25, 4096, 1, 1.0, 1024) == pytest.approx(0.25)


@given(p=st.integers(1, 4096), p0=st.integers(1, 64), tp=times, t0=times, w=st.integers(1, 10**6))
def test_overhead_is_the_inverse_of_efficiency_less_one(p, p0, tp, t0, w):
    s = metrics.speedup(metrics.throughput(3 * w, tp), metrics.throughput(w, t0))
    e = metrics.efficiency(s, p, p0)
    assert metrics.overhead(p, tp, 3 * w, p0, t0, w) == pytest.approx(1 / e - 1, rel=1e-9, abs=1e-9)


def test_karp_flatt_on_the_example_of_its_definition():
    assert metrics.karp_flatt(2.0, 4) == pytest.approx((1 / 2 - 1 / 4) / (1 - 1 / 4)) == pytest.approx(1 / 3)
    assert metrics.karp_flatt(4.0, 4) == 0
    assert metrics.karp_flatt(1.0, 1) is None


@given(f=st.floats(0, 1), p=st.integers(2, 10**5))
def test_karp_flatt_recovers_amdahls_fraction(f, p):
    assert metrics.karp_flatt(metrics.amdahl_speedup(f, p), p) == pytest.approx(f, abs=1e-6)


@given(f=st.floats(0, 1), p=st.integers(2, 10**5))
def test_gustafsons_fraction_recovers_itself(f, p):
    assert metrics.gustafson_fraction(metrics.gustafson_speedup(f, p), p) == pytest.approx(f, abs=1e-9)


def test_the_laws_on_known_answers():
    assert metrics.amdahl_speedup(0.05, 20) == pytest.approx(10.256, abs=1e-3)
    assert metrics.amdahl_speedup(0.1, 10**9) == pytest.approx(10, abs=1e-6)
    assert metrics.gustafson_speedup(0.005, 1024) == pytest.approx(1018.885)  # 0.5 % serial on 1024, as in the paper


def test_mfu_is_a_real_number():
    """A comparable tool casts it to an integer."""
    flops = metrics.model_flops(120e6, 1000.5)
    assert flops == pytest.approx(1.2006e11)
    assert metrics.mfu(flops, 1e12, 2) == pytest.approx(0.06003)


maybe = st.none() | times


@given(p=st.integers(2, 64), tp=times, ideal=times, c=maybe, share=st.floats(0.5, 1), skew=st.none() | st.floats(0, 10))
def test_the_waterfall_adds_up_whatever_is_known(p, tp, ideal, c, share, skew):
    losses = metrics.waterfall(p, tp, ideal, c, None if c is None else c * share, skew)
    measured = p * ideal / tp
    known = [v for v in losses.values() if v is not None]
    assert p - math.fsum(known) == pytest.approx(measured, rel=1e-9, abs=1e-9 * (p + sum(map(abs, known))))
    assert (losses["contention"] is None) == (losses["exposed"] is None) == (c is None)
    assert (losses["data_wait"] is None) == (skew is None)
    assert losses["exposed"] is None or losses["exposed"] >= 0


def test_the_waterfall_on_known_parts():
    """Ideal 50 ms, mean worker 55, slowest 60, 5 of waiting for the last batch, 15 of communication: 80 in all."""
    losses = metrics.waterfall(2, 0.080, 0.050, 0.060, 0.055, 0.005)
    assert {k: round(v * 0.080 / 2, 6) for k, v in losses.items()} == {
        "contention": 0.005,
        "imbalance": 0.005,
        "data_wait": 0.005,
        "exposed": 0.015,
        "remainder": 0.0,
    }


def test_without_a_calibration_all_is_remainder():
    losses = metrics.waterfall(2, 0.08, 0.05, None, None, None)
    assert [k for k, v in losses.items() if v is not None] == ["remainder"]
    assert losses["remainder"] == pytest.approx(2 - 2 * 0.05 / 0.08)


def test_bootstrap_is_the_same_every_time_and_inside_the_data():
    sample = [1.0, 1.1, 1.2, 1.3, 1.4]
    low, high = metrics.bootstrap([sample], lambda m: m)
    assert (low, high) == metrics.bootstrap([sample], lambda m: m)
    assert 1.0 <= low < 1.2 < high <= 1.4


def test_bootstrap_needs_two_repeats_of_each():
    assert metrics.bootstrap([[1.0]], lambda m: m) is None
    assert metrics.bootstrap([[1.0, 2.0], [1.0]], lambda a, b: a / b) is None


def test_bootstrap_covers_the_median_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        low, high = metrics.bootstrap([random.normal(10, 1, 15).tolist()], lambda m: m)
        hits += low <= 10 <= high
    assert 0.88 <= hits / 200 <= 1.0


def test_verdict():
    assert metrics.verdict((0.9, 0.99)) == "differs"
    assert metrics.verdict((0.9, 1.01)) == "cannot tell"
    assert metrics.verdict(None) is None


def test_a_falling_window_is_flagged_and_noise_is_not():
    random = np.random.default_rng(1)
    noise = 0.1 + random.normal(0, 0.001, 60)
    assert metrics.trends(metrics.trend(noise, 60)) is False
    drift, p = metrics.trend(noise - np.linspace(0, 0.01, 60), 60)
    assert p < 1e-4
    assert drift == pytest.approx(-0.1, abs=0.03)
    assert metrics.trends((drift, p)) is True


def test_a_significant_but_tiny_drift_is_not_flagged():
    assert metrics.trends(metrics.trend(np.linspace(0.1, 0.1001, 60), 60)) is False


def test_trend_of_equal_and_of_few_values():
    assert metrics.trend(np.full(30, 0.1), 30) == (0.0, 1.0)
    assert metrics.trend(np.arange(7.0), 7) is None
    assert metrics.trends(None) is None
