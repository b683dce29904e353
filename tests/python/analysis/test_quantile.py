"""Quantiles and block medians equal numpy's, also when the series no longer fits into memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import quantile


def series(values: np.ndarray, piece: int = 700) -> quantile.Series:
    out = quantile.Series()
    for at in range(0, len(values), piece):
        out.add(values[at : at + piece])
    return out


KINDS = {
    "normal": lambda r, n: r.normal(0.1, 0.01, n),
    "rounded": lambda r, n: np.round(r.normal(0.1, 0.01, n), 3),
    "outlier": lambda r, n: np.append(r.normal(0.1, 1e-7, n - 1), 1e6),
    "equal": lambda r, n: np.full(n, 0.25),
    "nearly equal": lambda r, n: np.where(r.random(n) < 0.9, 0.1, r.random(n)),
    "log": lambda r, n: 10 ** r.uniform(-6, 3, n),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2500, 20001])
def test_spilled_quantiles_are_exact(monkeypatch, kind, n):
    monkeypatch.setattr(quantile, "HELD", 1000)
    values = KINDS[kind](np.random.default_rng(3), n)
    s = series(values)
    assert s._spilled
    assert len(s) == n
    wanted = [0.0, 0.1, 0.5, 0.9, 0.999, 1.0]
    assert s.quantiles(wanted) == pytest.approx(np.quantile(values, wanted).tolist(), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=40, max_size=120), st.floats(0, 1))
def test_any_quantile_of_any_values(values, q):
    held, quantile.HELD = quantile.HELD, 16
    try:
        s = series(np.array(values), 7)
        assert s.quantiles([q])[0] == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)
    finally:
        quantile.HELD = held


def test_an_empty_series_has_no_quantile():
    assert quantile.Series().quantiles([0.5]) is None


def test_chunks_return_the_series_in_order(monkeypatch):
    monkeypatch.setattr(quantile, "HELD", 1000)
    values = np.arange(5300.0)
    assert np.array_equal(np.concatenate(list(series(values).chunks(999))), values)


def test_block_medians_are_those_of_equal_stretches(monkeypatch):
    monkeypatch.setattr(quantile, "HELD", 1000)
    values = np.random.default_rng(0).random(6400)
    wanted = np.median(values.reshape(64, 100), axis=1)
    assert np.array_equal(series(values).block_medians(), wanted)
    assert np.array_equal(series(values[:20]).block_medians(), values[:20])
