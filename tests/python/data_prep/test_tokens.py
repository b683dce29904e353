"""Tokens: every sample comes back within half a bin, every spelling of a lead is one lead."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ecg_train import tokens as tk

SCALES = st.floats(1e-6, 1e6)


@given(hnp.arrays(np.float64, st.integers(1, 50), elements=st.floats(-tk.SPAN, tk.SPAN)), SCALES)
def test_round_trip_within_half_a_bin(levels, scale):
    back = tk.decode(tk.encode(levels * scale, scale), scale)
    assert np.abs(back / scale - levels).max() <= tk.WIDTH / 2 * (1 + 1e-9)


@given(hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(-4.96875, 4.96875, width=32)))
def test_round_trip_in_single_precision(levels):
    back = tk.decode(tk.encode(levels, 1.0), 1.0)
    assert np.abs(back - levels).max() <= tk.WIDTH / 2 * (1 + 1e-3)


@given(hnp.arrays(np.float64, st.integers(1, 50), elements=st.floats(allow_nan=True, allow_infinity=True)), SCALES)
def test_any_float_gives_a_bin_or_a_gap(samples, scale):
    got = tk.encode(samples, scale)
    assert got.dtype == np.uint16
    assert (got < tk.VOCAB_SIZE).all()
    np.testing.assert_array_equal(got == tk.GAP, np.isnan(samples))
    assert (got[~np.isnan(samples)] >= tk.RESERVED).all()


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30))
def test_order_is_kept(values):
    got = tk.encode(np.sort(values), 1.0).astype(int)
    assert (np.diff(got) >= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_bins(dtype):
    samples = np.array([-9, -5, -tk.WIDTH / 2, tk.WIDTH / 2, 4.999, 5, 9, np.nan], dtype)
    assert tk.encode(samples, 1.0).tolist() == [64, 64, 543, 544, 1023, 1023, 1023, tk.GAP]


def test_every_bin_decodes_to_itself():
    bins = np.arange(tk.RESERVED, tk.VOCAB_SIZE, dtype=np.uint16)
    np.testing.assert_array_equal(tk.encode(tk.decode(bins, 0.7), 0.7), bins)


def test_reserved_ids_decode_to_nan():
    assert np.isnan(tk.decode(np.arange(tk.RESERVED), 1.0)).all()


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="scale must be"):
        tk.encode(np.zeros(3), scale)


@pytest.mark.parametrize(
    ("lead", "spellings"),
    [
        (
            "II",
            "II ii lead2 DII L2 d2 |Lead II|lead_2|ECG II|MDC_ECG_LEAD_II|ECG lead 2|II.|II (raw)|ECG II filtered",
        ),
        ("I", "I i DI |lead I|LA-RA|ECG I"),
        ("aVR", "aVR AVR avr aVr VR |a VR|Lead aVR|MDC_ECG_LEAD_AVR"),
        ("V1", "V1 v1 C1 |V 1|Lead V1|V-1|ECG V1|MDC_ECG_LEAD_V1"),
        ("V4R", "V4R v4r C4R RV4"),
        ("MLII", "MLII ML2 mlii |modified lead II|mod. lead II"),
        ("MV1", "MV1 mod.V1 |V1 mod"),
        ("V", "V v"),
        ("X", "X VX vx"),
    ],
)
def test_spellings_of_a_lead(lead, spellings):
    first, *more = spellings.split("|")
    for name in first.split() + more:
        assert tk.canonical_lead(name) == lead, name
        assert tk.lead_token(name) == tk.LEAD_ID[lead]


@pytest.mark.parametrize("name", ["ECG", "ecg1", "", None, "lead", "channel 3", "V10", "col 0", "ABP", "IV"])
def test_other_names_are_other(name):
    assert tk.lead_token(name) == tk.OTHER


def test_ids_are_distinct_and_reserved():
    ids = [tk.PAD, tk.BEGIN, tk.END, tk.GAP, tk.OTHER, *tk.LEAD_ID.values()]
    assert len(set(ids)) == len(ids)
    assert max(ids) < tk.RESERVED
    # Part of the format: a shard written yesterday must mean the same tomorrow.
    assert [tk.LEAD_ID[n] for n in ("I", "II", "aVF", "V1", "V6", "V", "MLI", "MLII", "AI")] == [
        5,
        6,
        10,
        11,
        16,
        24,
        25,
        26,
        48,
    ]


def test_entropy_known_answers():
    assert tk.entropy(np.full(8, 5)) == pytest.approx(np.log(8))
    assert tk.entropy(np.array([7, 0, 0])) == 0.0
    assert tk.entropy(np.zeros(4)) is None
