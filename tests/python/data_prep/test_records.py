"""Single records: tokens decode to the signal, and dirt becomes a reason."""

import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import wfdb
from prep_records import beats, write_record

from data_prep import dsp
from data_prep.header import Refusal
from data_prep.record import Settings, convert
from ecg_train import tokens as tk

SETTINGS = Settings()


def leads_of(stream: np.ndarray) -> dict[int, np.ndarray]:
    """Return lead id -> its sample tokens, checking BEGIN, lead, samples, END."""
    found, at = {}, 0
    ends = np.flatnonzero(stream == tk.END)
    for end in ends:
        assert stream[at] == tk.BEGIN
        found[int(stream[at + 1])] = stream[at + 2 : end]
        at = end + 1
    assert at == len(stream)
    return found


def refused(path: Path, root: Path | None = None) -> str:
    with pytest.raises(Refusal) as refusal:
        convert(path, root or path.parent, SETTINGS)
    return refusal.value.reason


@pytest.mark.parametrize("gain", [200.0, 1000.0, 5.0e5, 0.5])
def test_a_sine_keeps_its_amplitude_whatever_the_gain(tmp_path, gain):
    """1.5 mV at 5 Hz over an offset of 12 mV; a header whose gain is wrong scales all, tokens do not change."""
    t = np.arange(7200) / 360
    millivolt = 1.5 * np.sin(2 * np.pi * 5 * t)
    write_record(tmp_path, "s", [millivolt, millivolt / 2], "360", ["II", "V1"], gain=1000, baseline=12_000)
    path = tmp_path / "s.hea"
    path.write_text(path.read_text().replace("1000(12000)", f"{gain:g}(12000)"))
    facts, stream = convert(path, tmp_path, SETTINGS)
    # The record's factor is the mean (median of two) of the two leads' peaks.
    assert facts["scale"] == pytest.approx(1.5 * 0.75 * 1000 / gain, rel=0.02)
    for lead, height in (("II", 1.5), ("V1", 0.75)):
        got = tk.decode(leads_of(stream)[tk.LEAD_ID[lead]], facts["scale"])[100:-100] * gain / 1000
        want = height * np.sin(2 * np.pi * 5 * np.arange(2000) / 100)[100:-100]
        assert np.abs(got - want).max() < facts["scale"] * gain / 1000 * tk.WIDTH / 2 + 0.02
    assert facts["offset"] == pytest.approx([0, 0], abs=2 * 1000 / gain)


def test_missing_samples_are_gaps_and_flat_leads_are_named(tmp_path):
    x = beats(30, 250)
    x[2500:5000] = np.nan
    path = write_record(tmp_path, "g", [x, np.full(len(x), 0.3), np.full(len(x), np.nan)], leads=["II", "V1", "V2"])
    facts, stream = convert(path, tmp_path, SETTINGS)
    assert facts["leads"] == ["II"]
    assert facts["dropped"] == [{"lead": "V1", "reason": "flat"}, {"lead": "V2", "reason": "no-samples"}]
    got = leads_of(stream)[tk.LEAD_ID["II"]]
    assert facts["gaps"] == (got == tk.GAP).sum() == 1000
    assert (got[1000:2000] == tk.GAP).all()
    assert np.isfinite(tk.decode(got[:1000], facts["scale"])).all()


def test_names_with_dots_are_read(tmp_path):
    plain = convert(write_record(tmp_path / "a", "x", [beats(10, 250)]), tmp_path, SETTINGS)[1]
    dots = write_record(tmp_path / "b", "sub.01.ecg", [beats(10, 250)], dat="sub.01.ecg.dat")
    np.testing.assert_array_equal(convert(dots, tmp_path, SETTINGS)[1], plain)


def test_a_signal_file_in_a_folder_beside_is_read(tmp_path):
    header = write_record(tmp_path / "a", "x", [beats(10, 250)])
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.dat").rename(tmp_path / "b" / "x.dat")
    header.write_text(header.read_text().replace("x.dat", "../b/x.dat"))
    assert convert(header, tmp_path, SETTINGS)[0]["samples"] == 1000


def test_upside_down_gain(tmp_path):
    up = convert(write_record(tmp_path, "u", [beats(10, 250)]), tmp_path, SETTINGS)[1]
    path = write_record(tmp_path, "d", [-beats(10, 250)])
    path.write_text(path.read_text().replace("1000(0)", "-1000(0)"))
    down = convert(path, tmp_path, SETTINGS)[1]
    np.testing.assert_array_equal(up, down)


def test_big_endian_format_61_equals_16(tmp_path):
    little = convert(write_record(tmp_path, "l", [beats(10, 250)]), tmp_path, SETTINGS)[1]
    path = write_record(tmp_path, "b", [beats(10, 250)])
    np.fromfile(tmp_path / "b.dat", "<i2").astype(">i2").tofile(tmp_path / "b.dat")
    path.write_text(path.read_text().replace("b.dat 16", "b.dat 61"))
    np.testing.assert_array_equal(convert(path, tmp_path, SETTINGS)[1], little)


@pytest.mark.parametrize("per_frame", [1, 4])
def test_a_skewed_signal_is_put_at_its_own_time(tmp_path, per_frame):
    """A lead written 50 frames late gives the tokens of the same lead written in time, and a gap where it ends."""
    whole, late = beats(10, 250 * per_frame), 50 * per_frame

    def framed(name: str, x: np.ndarray, shape: str) -> Path:
        path = write_record(tmp_path, name, [x])
        text = path.read_text().replace(f" 250 {len(x)}\n", " 250 2500\n")
        path.write_text(text.replace(".dat 16 ", f".dat 16x{shape} "))
        return path

    header = framed("late", np.concatenate([np.zeros(late), whole[:-late]]), f"{per_frame}:50")
    plain = framed("in_time", np.concatenate([whole[:-late], np.full(late, np.nan)]), f"{per_frame}")
    facts, got = convert(header, tmp_path, SETTINGS)
    np.testing.assert_array_equal(got, convert(plain, tmp_path, SETTINGS)[1])
    assert facts["gaps"] >= 20


def test_a_wrong_checksum_is_recorded_and_the_record_kept(tmp_path):
    """The lead is named; the right one, as wfdb itself writes it, passes, and none is no fault."""
    path = write_record(tmp_path, "one", [beats(10, 250)])
    assert convert(path, tmp_path, SETTINGS)[0]["wrong_checksum"] == ["II"]
    path.write_text(path.read_text().replace(" 16 0 0 0 0 II", ""))
    assert "wrong_checksum" not in convert(path, tmp_path, SETTINGS)[0]
    steps = np.round(beats(10, 250) * 90).astype(int).reshape(-1, 1)
    for fmt in ("16", "24", "32", "80", "508", "516", "524"):  # those that wfdb writes
        told = {"d_signal": steps, "fmt": [fmt], "adc_gain": [90.0], "baseline": [0], "write_dir": str(tmp_path)}
        wfdb.wrsamp(f"f{fmt}", 250, ["mV"], ["II"], **told)
        good = tmp_path / f"f{fmt}.hea"
        assert "wrong_checksum" not in convert(good, tmp_path, SETTINGS)[0], fmt
        (checksum,) = (line.split()[6] for line in good.read_text().splitlines()[1:])
        good.write_text(good.read_text().replace(f" {checksum} ", f" {int(checksum) + 1} "))
        assert convert(good, tmp_path, SETTINGS)[0]["wrong_checksum"] == ["II"], fmt


def test_reasons(tmp_path):
    """One record per way to be unusable."""
    x = beats(10, 250)

    def made(name: str, old: str = "", new: str = "", **options) -> Path:
        path = write_record(tmp_path, name, options.pop("signals", [x]), **options)
        path.write_text(path.read_text().replace(old, new) if old else path.read_text())
        return path

    assert refused(made("size", " 2500\n", " 1000000000000\n")) == "implausible-size"
    assert refused(made("many", "16 1000", "16x100000 1000")) == "implausible-size"
    assert refused(made("skew", "16 1000", "16:99999999999 1000")) == "implausible-size"
    assert refused(made("outside", "outside.dat", "../outside.dat")) == "path-escapes-source"
    assert refused(made("absolute", "absolute.dat", "/etc/hostname")) == "path-escapes-source"
    assert refused(made("flat", signals=[np.zeros(2500)])) == "flat"
    assert refused(made("nan", signals=[np.full(2500, np.nan)])) == "no-samples"
    assert refused(made("short", signals=[x[:200]])) == "too-short"
    assert refused(made("slow", rate="1")) == "implausible-rate"
    assert refused(made("zero", rate="0")) == "implausible-rate"
    assert refused(made("resp", leads=["RESP"])) == "no-ecg-lead"
    assert refused(made("format", "16 1000", "99 1000")) == "unreadable-signal"
    cut = made("cut")
    os.truncate(tmp_path / "cut.dat", 4998)
    assert refused(cut) == "truncated-signal"
    gone = made("gone")
    (tmp_path / "gone.dat").unlink()
    assert refused(gone) == "missing-signal-file"
    pipe = made("pipe")
    (tmp_path / "pipe.dat").unlink()
    os.mkfifo(tmp_path / "pipe.dat")
    assert refused(pipe) == "unreadable-signal"
    junk = tmp_path / "junk.hea"
    junk.write_bytes(os.urandom(300))
    assert refused(junk) == "unreadable-header"
    (tmp_path / "folder.hea").mkdir()
    assert refused(tmp_path / "folder.hea") == "unreadable-header"


@pytest.mark.parametrize("layout", ["fixed", "variable"])
def test_a_lost_segment_is_a_gap(tmp_path, layout):
    for i in range(3):
        write_record(tmp_path, f"m_{i}", [beats(10, 250, i)], leads=["II"])
    lines = [f"m_{i} 2500" for i in range(3)]
    if layout == "variable":
        (tmp_path / "m_layout.hea").write_text("m_layout 1 250 0\n~ 0 200/mV 0 0 0 0 0 II\n")
        lines = ["m_layout 0", lines[0], lines[1], "~ 500", lines[2]]
    (tmp_path / "m.hea").write_text(f"m/{len(lines)} 1 250 {7500 + 500 * (layout == 'variable')}\n" + "\n".join(lines))
    (tmp_path / "m_1.dat").unlink()
    facts, stream = convert(tmp_path / "m.hea", tmp_path, SETTINGS)
    assert (facts["segments_lost"], facts["gaps"]) == (1, 1000 + 200 * (layout == "variable"))
    got = leads_of(stream)[tk.LEAD_ID["II"]]
    assert (got[1000:2000] == tk.GAP).all()
    assert (got[:999] != tk.GAP).all()


def reference(path: Path) -> dict[str, np.ndarray]:
    """Read as wfdb does, physical values at each channel's own rate; channel name -> samples."""
    wfdb = pytest.importorskip("wfdb")
    record = wfdb.rdrecord(str(path)[:-4], smooth_frames=False)
    names = zip(record.sig_name, record.e_p_signal, record.samps_per_frame, strict=True)
    return {name: (x, record.fs * spf) for name, x, spf in names}


@pytest.mark.parametrize(
    "name",
    [
        *("mitdb/100", "mitdb/208", "cinc2021/JS20004", "formats/a103l", "formats/mixedsignals"),
        *("formats/flacformats", "formats/310derive", "formats/s25047/s25047-2704-05-04-10-44"),
    ],
)
def test_real_records_decode_to_what_wfdb_reads(recordings, name):
    """Against wfdb's physical signal, resampled by scipy and without the baseline: within half a bin."""
    signal = pytest.importorskip("scipy.signal")
    path = recordings / f"{name}.hea"
    facts, stream = convert(path, recordings, SETTINGS)
    want = reference(path)
    streams = np.split(stream, np.flatnonzero(stream == tk.END)[:-1] + 1)
    kept = {tk.canonical_lead(n) or n: v for n, v in want.items()}
    for lead, part, offset in zip(facts["leads"], streams, facts["offset"], strict=True):
        x, rate = kept[lead]
        missing = np.isnan(x)
        x = np.where(missing, np.interp(np.arange(len(x)), np.flatnonzero(~missing), x[~missing]), x) - offset
        factor = dsp.ratio(Fraction(str(rate)), SETTINGS.rate)
        up, down = factor.numerator, factor.denominator
        x = signal.resample_poly(x, up, down, window=dsp.lowpass(up, down) / up, padtype="edge")
        dsp.remove_baseline(x, 100.0)
        got = tk.decode(part[2:-1], facts["scale"])
        assert len(got) == len(x)
        near = np.isfinite(got) & (np.abs(x) < tk.SPAN * facts["scale"])
        near[:30] = near[-30:] = False  # the ends are held differently
        # 1 % of a bin for single precision, and a hundredth of the amplitude beside the start of a gap
        error = np.abs(got - x)[near] / (facts["scale"] * tk.WIDTH)
        assert np.quantile(error, 0.999) <= 0.51
        assert error.max() <= 1.5


def test_flac_and_its_plain_copy_agree(recordings):
    facts, _ = convert(recordings / "formats/flacformats.hea", recordings, SETTINGS)
    assert len(facts["leads"]) == 3


def test_missing_signal_file_of_the_archive(recordings):
    assert refused(recordings / "formats/30.hea") == "missing-signal-file"
