"""Headers: what is sound is read, what is hostile or broken is refused before any memory is taken."""

import contextlib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import header as hd
from data_prep.leads import millivolts


def test_fields_of_a_record():
    got = hd.parse(
        "mix.1 2 62.4725/999.56(3) 14400 12:00:00 01/02/2003\r\n"
        "mix.1.d 516x4:2+24 200.5(-7)/mV 14 8192 -5 24460 0 ECG lead II\n"
        "other.d 212\n# Age: 70\n"
    )
    assert (got.name, got.rate, got.samples, got.comments) == ("mix.1", Fraction("62.4725"), 14400, ["Age: 70"])
    one, two = got.signals
    assert (one.file, one.fmt, one.per_frame, one.skew, one.offset) == ("mix.1.d", "516", 4, 2, 24)
    assert (one.gain, one.baseline, one.units, one.initial, one.name) == (200.5, -7, "mV", -5, "ECG lead II")
    assert (two.gain, two.baseline, two.per_frame, two.name) == (200.0, 0, 1, "")


def test_defaults_of_the_standard():
    got = hd.parse("a 1\na.dat 16 0 12 77\n")
    assert (got.rate, got.samples) == (250, None)
    assert (got.signals[0].gain, got.signals[0].baseline) == (200.0, 77)


def test_segments():
    assert hd.parse("a/2 3 125 100\nlayout 0\n~ 100\n").segments == [("layout", 0), ("~", 100)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "one",
        "a x 250",
        "a 1 abc",
        "a 1 1e999999999 10\na.dat 16",
        "a 1 250 10",
        "a 3 250 10\na.dat 16",
        "a 1 250 10\na.dat",
        "a 1 250 10\na.dat 16x" + "9" * 5000,
        "a 1 250 " + "9" * 5000,
        "a/3 1 250 10\nb 5",
        "a/1 1 250 10\nb x",
        "a -1 250 10\na.dat 16",
        "\0\0\0\0",
    ],
)
def test_broken_headers_are_refused(text):
    with pytest.raises(hd.Refusal) as refusal:
        hd.parse(text)
    assert refusal.value.reason == "unreadable-header"


@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused(text):
    with contextlib.suppress(hd.Refusal):
        hd.parse(text)


@given(st.binary(max_size=200))
def test_any_bytes_load_or_are_refused(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any.hea"
    path.write_bytes(b"any 1 250 100\n" + raw)
    with contextlib.suppress(hd.Refusal):
        hd.load(path)


@pytest.mark.parametrize("file", ["../x.dat", "a/../../x.dat", "/etc/passwd", "..", "sub/../../../x", "."])
def test_files_outside_the_source_are_refused(file):
    with pytest.raises(hd.Refusal) as refusal:
        hd.inside(Path("/src"), file, Path("/src"))
    assert refusal.value.reason == "path-escapes-source"


def test_files_inside_the_source_are_taken():
    assert hd.inside(Path("/src/a"), "../b/x.dat", Path("/src")) == Path("/src/a/../b/x.dat")
    assert hd.inside(Path("/src/a"), "x..dat", Path("/src")) == Path("/src/a/x..dat")


@pytest.mark.parametrize(
    ("name", "units", "factor"),
    [
        ("II", "mV", 1.0),
        ("II", "", 1.0),
        ("II", "uV", 1e-3),
        ("II", "V", 1e3),
        ("II", "NU", 1.0),
        ("ECG", "mV", 1.0),
        ("col 0", "", 1.0),
        ("chan 1", "uV", 1e-3),
        ("V", "mmHg", None),
        ("ABP", "mmHg", None),
        ("ABP", "mV", None),
        ("PLETH", "NU", None),
        ("RESP", "mV", None),
        ("EEG (C4-A1)", "mV", None),
        ("EOG (right)", "mV", None),
        ("EMG", "mV", None),
        ("Resp (chest)", "l", None),
        ("SpO2", "%", None),
        ("HR", "bpm", None),
        ("something", "NU", None),
    ],
)
def test_which_channels_are_ecg(name, units, factor):
    assert millivolts(name, units) == factor
