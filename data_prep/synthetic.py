"""Make synthetic multi-lead ECG and write it as genuine WFDB records.

The beats come from neurokit2's ECGSYN (McSharry et al., IEEE Trans. Biomed. Eng. 50, 2003), a model with a
heart rate that varies and five waves, P, Q, R, S and T. Its own twelve leads (method "multileads") are not
used: they scale every lead to the same 1.6 mV, hardly show an R wave in lead II and begin with a swing of
seconds. In the model the signal is linear in the heights of the waves, so each wave is simulated once per
record with the same heart beats, and a lead is their sum with heights that are typical of it, in mV. III and
the augmented leads follow from I and II (Einthoven, Goldberger), as in a recorder. Each patient has heart
rate, wave shapes and heights of his own; each record noise, baseline wander, mains hum and now and then a
loose electrode (missing samples). There are no ectopic beats.

Every record is a function of (seed, its number, number of records, hours) alone: neither the number of
processes nor an interruption changes a sample. It stands in for real recordings where there are none; results
from it are marked so.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click
import numpy as np

from data_prep import pool
from data_prep.convert import convert
from data_prep.errors import WorkError
from data_prep.plan import check_dataset
from data_prep.progress import Progress
from ecg_train.errors import UserError
from ecg_train.shards import read_manifest

RECIPE = 1  # raise when the same request would give other samples
STAMP = ".synthetic.json"  # in the shard set: what it was made for

MAX_HOURS = 1000.0  # about 40 GB of records and a day of one core
RECORD_SECONDS = 120.0  # with LEAD_IN below 128: the model computes a power of two of seconds
MIN_SECONDS = 10.0
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
# Heights of P, Q, R, S, T in mV of the leads that are measured, typical of healthy adults; the others follow from them.
HEIGHTS = {
    "I": (0.08, -0.05, 0.6, -0.1, 0.2),
    "II": (0.15, -0.06, 1.0, -0.15, 0.3),
    "V1": (0.06, 0.0, 0.25, -0.9, -0.05),
    "V2": (0.06, 0.0, 0.5, -1.3, 0.4),
    "V3": (0.06, 0.0, 0.9, -0.9, 0.45),
    "V4": (0.07, -0.05, 1.4, -0.5, 0.45),
    "V5": (0.07, -0.08, 1.2, -0.2, 0.35),
    "V6": (0.07, -0.08, 0.9, -0.1, 0.25),
}
SAFE = 0.28  # rad; see _waves
LEAD_IN = 4  # seconds at the start of a simulation that are left out: the model swings in
GAIN = 1000  # digital steps per mV, as in PTB-XL
MISSING = -32768  # WFDB's mark for "no sample" in format 16


@dataclass(frozen=True)
class Plan:
    """One record to make."""

    name: str
    """Path below the folder without ending, e.g. p003/p003_1."""
    patient: int
    number: int
    samples: int
    rate: int
    """Hz."""
    seed: int


def check_hours(text: str | float) -> float:
    """Return the hours as a number. Raises UserError unless 0 < hours <= MAX_HOURS."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= MAX_HOURS:  # NaN compares false
        raise UserError(
            f"HOURS={text} is no number above 0 and at most {MAX_HOURS:g}; try: make data DATASET=synthetic HOURS=0.5"
        )
    return hours


def plan(hours: float, seed: int) -> list[Plan]:
    """Return the records of a data set: at least three, so that each split has a patient, of at most two
    minutes.

    From 20 records on a patient has two of them. The whole lasts ``hours``, or 30 s where that is less.
    """
    total = max(check_hours(hours) * 3600, 3 * MIN_SECONDS)
    length = min(RECORD_SECONDS, max(MIN_SECONDS, total / 10))
    count = max(3, math.ceil(total / length - 1e-9))
    each = 2 if count >= 20 else 1
    digits = max(3, len(str(count)))
    plans = []
    for number in range(count):
        patient = number // each
        rate = (360, 500)[patient % 2]  # what MIT-BIH and PTB-XL were sampled at
        label = f"p{patient:0{digits}d}"
        name = f"{label}/{label}_{number % each}"
        plans.append(Plan(name, patient, number, round(total / count * rate), rate, seed))
    return plans


def _waves(record: Plan, person: np.random.Generator, rng: np.random.Generator) -> np.ndarray:
    """Return the five waves of a record, each about 1 high on a baseline of 0: shape (samples, 5).

    The library's solver takes steps of up to 0.6 rad and now and then jumps over half of a wave as narrow as
    Q, R and S (0.1 rad): the signal then leaps. So these are simulated SAFE rad wide and sharpened after
    that: the waves are Gauss curves, and a power of k makes one narrower by the square root of k.
    """
    from neurokit2 import ecg_simulate  # takes seconds to import: only where it is needed
    from scipy.signal import find_peaks

    angles = np.array([-70, -15, 0, 15, 100]) * person.uniform(0.9, 1.1, 5)  # degrees; the model's defaults
    widths = np.array([0.25, 0.1, 0.1, 0.1, 0.4]) * person.uniform(0.9, 1.15, 5)  # rad
    simulated = np.maximum(widths, SAFE)
    beats = {
        "heart_rate": float(person.uniform(50, 95) + rng.uniform(-3, 15)),
        "heart_rate_std": float(rng.uniform(1, 5)),
        "lfhfratio": float(rng.uniform(0.3, 2.0)),
        "random_state": int(rng.integers(1 << 31)),
    }
    skip, times = LEAD_IN * record.rate, np.arange(record.samples)
    waves = np.empty((record.samples, 5))
    for number in range(5):
        wave = ecg_simulate(
            length=skip + record.samples,
            duration=LEAD_IN + record.samples / record.rate + 2,  # it rounds to beats: never end up short
            sampling_rate=record.rate,
            noise=0,
            ti=angles,
            ai=30.0 * np.eye(5)[number],
            bi=simulated,
            **beats,
        )[skip:]
        wave -= np.median(wave)
        peaks, _ = find_peaks(wave, height=0.5 * wave.max(), distance=0.3 * record.rate)
        height = np.interp(times, peaks, wave[peaks])  # varies a little, with the breathing
        sharp = np.clip(wave / height, 0, None) ** ((simulated / widths)[number] ** 2)
        waves[:, number] = sharp * height / np.median(wave[peaks])
    return waves


def simulate(record: Plan) -> np.ndarray:
    """Return the signal of a record: int16 of shape (samples, 12) in steps of 1 / GAIN mV, MISSING where
    there is none."""
    person = np.random.default_rng([record.seed, 0, record.patient])
    rng = np.random.default_rng([record.seed, 1, record.number])
    waves = _waves(record, person, rng)
    heights = np.array(list(HEIGHTS.values())) * person.uniform(0.7, 1.3, (8, 5)) * person.uniform(0.6, 1.4)
    seconds = np.arange(record.samples)[:, None] / record.rate
    measured = waves @ heights.T + rng.normal(0, rng.uniform(0.005, 0.02), (record.samples, 8))
    for low, high, most in ((0.05, 0.15, 0.15), (0.15, 0.4, 0.08)):  # drift of the electrodes, breathing
        size = rng.uniform(0, most, 8)
        measured += size * np.sin(2 * np.pi * (rng.uniform(low, high) * seconds + rng.uniform(0, 1, 8)))
    hum = 2 * np.pi * person.choice([50.0, 60.0]) * seconds
    measured += rng.uniform(0, 0.01, 8) * np.sin(hum + rng.uniform(0, 2 * np.pi, 8))
    one, two = measured[:, :1], measured[:, 1:2]
    limbs = [one, two, two - one, -(one + two) / 2, one - two / 2, two - one / 2]
    signal = np.hstack([*limbs, measured[:, 2:]])
    digital = np.clip(np.rint(signal * GAIN), -32767, 32767).astype(np.int16)
    if rng.random() < 0.125:  # a loose electrode
        start = int(rng.uniform(0, 0.8) * len(digital))
        digital[start : start + int(rng.uniform(0.3, 2.0) * record.rate), rng.integers(12)] = MISSING
    return digital


def _write(folder: Path, record: Plan) -> bool:
    """Simulate one record and write it below the folder, its header last: a record with a header is
    complete."""
    import wfdb

    header = folder / f"{record.name}.hea"
    if header.exists():
        return True
    label = header.stem
    header.parent.mkdir(parents=True, exist_ok=True)
    part = header.parent / f".{label}"
    part.mkdir(exist_ok=True)
    wfdb.wrsamp(
        label,
        fs=record.rate,
        units=["mV"] * 12,
        sig_name=list(LEADS),
        d_signal=simulate(record),
        fmt=["16"] * 12,
        adc_gain=[GAIN] * 12,
        baseline=[0] * 12,
        comments=[f"synthetic: neurokit2 ECGSYN, seed {record.seed}"],
        write_dir=str(part),
    )
    (part / f"{label}.dat").replace(header.with_suffix(".dat"))
    (part / f"{label}.hea").replace(header)
    part.rmdir()
    return True


def write_records(folder: Path, hours: float, seed: int, jobs: int | None = None) -> Iterator[int]:
    """Write the WFDB records of ``hours`` of synthetic ECG (12 leads, format 16, 360 or 500 Hz) below the
    folder.

    Yields the number of records that are done after each one, so that a caller can show progress; nothing
    happens until it is iterated. Records that are there already are kept. ``jobs`` is the number of
    processes, by default one per core. Raises UserError for hours out of range or a negative seed, WorkError
    or OSError where writing fails.
    """
    if seed < 0:
        raise UserError(f"SEED={seed} is negative; take a whole number from 0 on")
    plans = plan(hours, seed)
    _version()
    import neurokit2  # noqa: F401 - once, before the workers are forked
    import wfdb  # noqa: F401

    folder.mkdir(parents=True, exist_ok=True)
    jobs = pool.cores() if jobs is None else jobs
    tasks = [(folder, record) for record in plans]
    for done, (number, written) in enumerate(pool.run(_write, tasks, jobs, folder), start=1):
        if not written:
            raise WorkError(f"the process that made record {plans[number].name} was killed, twice; is memory short?")
        yield done


def _version() -> str:
    """Return the version of neurokit2: another one may draw another signal. Raises UserError where it is
    missing."""
    try:
        return metadata.version("neurokit2")
    except metadata.PackageNotFoundError:
        raise UserError("synthetic ECG needs the package neurokit2, which is not installed; run: make setup") from None


def _finished(folder: Path, request: dict) -> bool:
    """Tell whether the shard set in the folder is whole and was made for the same request."""
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
        manifest = read_manifest(folder)
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        whole = all((folder / s["file"]).stat().st_size == 2 * s["tokens"] for s in shards)
        return whole and stamp == request | {"digest": manifest["digest"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make(hours: float, seed: int, out: Path, dataset: str, jobs: int | None = None) -> dict | None:
    """Make the shard set out/dataset of synthetic ECG; return its manifest, None where it was there already.

    The records lie in a hidden folder beside the set until they are converted, so that an interrupted run
    goes on where it was. Raises UserError and WorkError.
    """
    check_dataset(dataset)
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs is {jobs}; wanted a whole number of at least 1")
    hours = check_hours(hours)
    request = {"recipe": RECIPE, "hours": hours, "seed": seed, "neurokit2": _version()}
    if _finished(out / dataset, request):
        return None
    key = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:12]
    records = out / f".{dataset}-records-{key}"
    try:
        with Progress(len(plan(hours, seed)), "simulate") as progress:
            for _ in write_records(records, hours, seed, jobs):
                progress.step(skipped=False)
        manifest = convert(dataset, records, out, jobs, synthetic=True).manifest
        (out / dataset / STAMP).write_text(json.dumps(request | {"digest": manifest["digest"]}))
    except OSError as error:
        hint = "free some space and run the same command again, it resumes"
        raise WorkError(f"writing to {out} failed: {error.strerror or error}; {hint}") from None
    shutil.rmtree(records, ignore_errors=True)
    return manifest


@click.command()
@click.option("--hours", required=True, help="Hours of recording, all 12 leads; more than 0, at most 1000.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other patients.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Data folder; the set is OUT/DATASET.")
@click.option("--dataset", default="synthetic", show_default=True, help="Name of the shard set.")
@click.option("--jobs", type=int, help="Worker processes.  [default: all cores of this process]")
def command(hours: str, seed: int, out: Path, dataset: str, jobs: int | None) -> None:
    """Make HOURS of synthetic 12-lead ECG, write it as WFDB records, and convert these to the shard set
    OUT/DATASET.

    An hour takes a minute and a half of one core and makes 4.3 million tokens. A run that was killed is
    resumed by the same command; a set that is complete and of the same request is left alone. The set is
    marked synthetic.
    """
    from data_prep.cli import summary

    manifest = make(check_hours(hours), seed, out, dataset, jobs)
    if manifest is None:
        click.echo(f"{dataset}: complete and unchanged, nothing to do ({out / dataset})")
    else:
        click.echo(summary(manifest))
