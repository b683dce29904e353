"""Signal steps against known answers and against scipy."""

from fractions import Fraction

import numpy as np
import pytest

from data_prep import dsp

RATES = ["360", "500", "1000", "250", "257", "125", "128", "200", "50", "240", "100"]


@pytest.mark.parametrize("rate", [*RATES, "249.89", "999.56"])
@pytest.mark.parametrize("n", [1, 7, 1000, 5003])
def test_resample_is_scipys_polyphase(rate, n):
    """Equal to resample_poly in the middle, equal in length; the ends hold the last value instead of a jump."""
    signal = pytest.importorskip("scipy.signal")
    factor = dsp.ratio(Fraction(rate), Fraction(100))
    x = np.random.default_rng(1).standard_normal(n)
    got = dsp.resample(x, factor)
    up, down = factor.numerator, factor.denominator
    window = dsp.lowpass(up, down) / up
    want = signal.resample_poly(np.pad(x, n, mode="edge"), up, down, window=window)
    alone = signal.resample_poly(x, up, down, window=window)
    assert len(got) == len(alone)
    edge = int(22 * max(1, factor)) + 1
    np.testing.assert_allclose(got[edge:-edge], alone[edge:-edge], atol=1e-9)
    if (n * factor).denominator == 1 and 2 * edge < len(got):  # then the padded grid is the same grid
        start = int(n * factor)
        np.testing.assert_allclose(got, want[start : start + len(got)], atol=1e-6)


@pytest.mark.parametrize("rate", ["360", "500", "249.89"])
def test_constant_stays_constant(rate):
    got = dsp.resample(np.full(2000, 3.0, np.float32), dsp.ratio(Fraction(rate), Fraction(100)))
    np.testing.assert_allclose(got, 3.0, rtol=1e-6)


@pytest.mark.parametrize("rate", RATES[:-1])
def test_filter_is_scipys_but_for_a_ripple_at_zero_hertz(rate):
    signal = pytest.importorskip("scipy.signal")
    factor = dsp.ratio(Fraction(rate), Fraction(100))
    up, down = factor.numerator, factor.denominator
    want = up * signal.firwin(20 * max(up, down) + 1, 1 / max(up, down), window=("kaiser", 5.0))
    np.testing.assert_allclose(dsp.lowpass(up, down), want, atol=4e-3 * want.max())


@pytest.mark.parametrize(
    ("hertz", "least", "most"), [(5, 0.99, 1.01), (30, 0.99, 1.01), (60, 0, 0.01), (140, 0, 0.002)]
)
def test_passes_the_ecg_and_stops_what_would_fold(hertz, least, most):
    t = np.arange(3600) / 360
    got = dsp.resample(np.sin(2 * np.pi * hertz * t), Fraction(100, 360))[100:-100]
    assert least <= np.sqrt(2 * np.mean(got**2)) <= most


def test_time_stays_in_place():
    x = np.exp(-((np.arange(3600) / 360 - 5.0) ** 2) / (2 * 0.02**2))
    assert np.argmax(dsp.resample(x, Fraction(100, 360))) == 500


@pytest.mark.parametrize("rate", ["360", "62.4725", "999.56", "360.1", "128.0001", "33.3333333333333"])
def test_ratio_is_exact_or_close(rate):
    exact = 100 / Fraction(rate)
    got = dsp.ratio(Fraction(rate), Fraction(100))
    assert abs(got / exact - 1) < 2e-5
    assert max(got.numerator, got.denominator) <= 50_000


@pytest.mark.parametrize("hertz", [0.05, 0.1, 0.5, 1.0, 5.0])
def test_baseline_gain_is_the_formula(hertz):
    t = np.arange(20_000) / 100
    got = dsp.remove_baseline(np.sin(2 * np.pi * hertz * t), 100.0)[500:-500]
    mean = np.sin(np.pi * hertz * 1.01) / (101 * np.sin(np.pi * hertz / 100))  # 101 samples
    assert np.abs(got).max() == pytest.approx(1 - mean**2, abs=2e-3)


@pytest.mark.parametrize("n", [1, 2, 50, 101, 102, 150, 203, 1000])
def test_baseline_of_a_constant_is_the_constant(n):
    np.testing.assert_allclose(dsp.remove_baseline(np.full(n, 7.0), 100.0), 0, atol=1e-9)


def test_moving_mean_is_the_mean_of_what_is_there():
    x = np.random.default_rng(0).standard_normal(400)
    want = [x[max(0, i - 50) : i + 51].mean() for i in range(400)]
    np.testing.assert_allclose(dsp._moving_mean(x, 101), want, atol=1e-12)


def test_amplitude_of_a_sine_and_of_a_sine_with_artefacts():
    x = 0.8 * np.sin(2 * np.pi * 5 * np.arange(30_000) / 100)
    assert dsp.amplitude(x, None, 100.0) == pytest.approx(0.8, rel=1e-6)
    x[3000:12_000] = 500.0  # 30 % of the time the amplifier sat at its rail
    assert dsp.amplitude(x, None, 100.0) == pytest.approx(0.8, rel=1e-6)


def test_amplitude_does_not_count_gaps_and_flat_parts():
    x = 0.8 * np.sin(2 * np.pi * 5 * np.arange(30_000) / 100)
    missing = np.zeros(len(x), bool)
    missing[:12_000] = True
    x[12_000:20_000] = 0
    assert dsp.amplitude(x, missing, 100.0) == pytest.approx(0.8, rel=1e-6)
    assert dsp.amplitude(np.zeros(5000), None, 100.0) == 0.0


def test_gaps_are_bridged_and_land_where_they_were():
    x = np.arange(3600.0)
    missing = np.zeros(3600, bool)
    missing[1800:2160] = True
    x[missing] = -1e9
    dsp.fill_gaps(x, missing)
    np.testing.assert_allclose(x, np.arange(3600.0))
    out = dsp.resample_mask(missing, Fraction(100, 360), 1000)
    assert out.sum() == 100
    assert out[500:600].all()


def test_a_lead_that_is_off_most_of_the_time_keeps_its_amplitude():
    """Crumbs of rounding, and the noise of one step, where the electrode was off do not make the scale."""
    x = np.full(30_000, 731.0, np.float32)
    x += np.random.default_rng(0).integers(0, 2, len(x))
    x[:6000] += (160 * np.sin(2 * np.pi * 5 * np.arange(6000) / 100)).astype(np.float32)
    moving = dsp.alive(x, 100.0, 1.0)
    assert moving.sum() == 30
    assert dsp.amplitude(dsp.remove_baseline(x, 100.0), None, 100.0, moving) == pytest.approx(160, rel=0.02)
