"""What is to be told apart: per task the classes, and the labelled stretches of a record."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.header import Refusal, inside
from data_prep.splits import PACED
from ecg_train import tokens
from ecg_train.errors import UserError

# ANSI/AAMI EC57, as de Chazal, O'Dwyer and Reilly 2004 (table I) assign the annotation codes of MIT-BIH to it.
AAMI = {"N": "NLRej", "S": "AaJS", "V": "VE", "F": "F", "Q": "/fQ"}
BEAT_CLASS = {symbol: number for number, symbols in enumerate(AAMI.values()) for symbol in symbols}
BEAT_LEADS = ("MLII", "II")
SUPERCLASSES = ("NORM", "MI", "STTC", "CD", "HYP")  # Wagner et al. 2020, PTB-XL
FEWEST_RECORDS = 10
"""A code that fewer training records carry is no class, unless told otherwise."""
MOST_CODES = 64

Stretch = tuple[np.ndarray, list[int]]  # tokens (seq_len,), classes


def leads_of(stream: np.ndarray) -> dict[str, np.ndarray]:
    """Return the samples of each lead, by name, of a record's tokens; a name that comes twice keeps its first."""
    names = {number: name for name, number in tokens.LEAD_ID.items()}
    begins, ends = np.flatnonzero(stream == tokens.BEGIN), np.flatnonzero(stream == tokens.END)
    found: dict[str, np.ndarray] = {}
    for begin, end in zip(begins, ends, strict=True):
        found.setdefault(names.get(int(stream[begin + 1]), "other"), stream[begin + 2 : end])
    return found


def stretch(name: str, samples: np.ndarray, first: int, seq_len: int) -> np.ndarray:
    """Return BEGIN, the lead, and seq_len - 2 samples from ``first`` on; what lies outside of the lead is a gap."""
    count = seq_len - 2
    out = np.full(seq_len, tokens.GAP, np.uint16)
    out[0], out[1] = tokens.BEGIN, tokens.LEAD_ID.get(name, tokens.OTHER)
    low, high = max(first, 0), min(first + count, len(samples))
    if high > low:
        out[2 + low - first : 2 + high - first] = samples[low:high]
    return out


def segments(stream: np.ndarray, labels: list[int], seq_len: int) -> Iterator[Stretch]:
    """Yield all whole segments of all leads, side by side; the record's labels hold for each of them."""
    count = seq_len - 2
    for name, samples in leads_of(stream).items():
        for number in range(max(1, len(samples) // count)):
            yield stretch(name, samples, number * count, seq_len), labels


class Beats:
    """One example per beat, in the middle of it; the classes of AAMI EC57; recordings with a pacemaker are left out."""

    name, multilabel, per_group = "beats", False, False
    classes = tuple(AAMI)

    def __init__(self, manifest: dict, src: Path, fewest: int) -> None:
        self.src = src
        self.rate = float(manifest["tokenizer"]["rate_hz"])

    def stretches(self, record: dict, stream: np.ndarray, seq_len: int) -> Iterator[Stretch]:
        """Yield the beats of a record. Raises UserError where its annotations cannot be read."""
        if record["record"].rsplit("/", 1)[-1] in PACED:
            return
        where, symbols = annotations(self.src, record["record"])
        leads = leads_of(stream)
        name = next((lead for lead in BEAT_LEADS if lead in leads), next(iter(leads)))
        half = (seq_len - 2) // 2
        for sample, symbol in zip(where, symbols, strict=True):
            if symbol in BEAT_CLASS:
                middle = round(int(sample) / record["rate_hz"] * self.rate)
                yield stretch(name, leads[name], middle - half, seq_len), [BEAT_CLASS[symbol]]


def annotations(src: Path, record: str) -> tuple[np.ndarray, list[str]]:
    """Return sample numbers and symbols of a record's reference annotations (.atr). Raises UserError."""
    import wfdb

    try:
        path = inside(src, f"{record}.atr", src)
    except Refusal as refusal:
        raise UserError(f"record {record!r}: {refusal}") from None
    if not path.is_file():
        raise UserError(f"{path} is not there: the task 'beats' needs the reference annotations of every record")
    try:
        found = wfdb.rdann(str(path.with_suffix("")), "atr")
    except Exception as error:  # noqa: BLE001 - whatever the reader throws at a damaged file
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    return found.sample, found.symbol


class Superclasses:
    """PTB-XL's five diagnostic superclasses, of which several may hold; the answer is one per recording."""

    name, multilabel, per_group = "superclasses", True, True
    classes = SUPERCLASSES

    def __init__(self, manifest: dict, src: Path, fewest: int) -> None:
        table = src / "scp_statements.csv"
        try:
            with table.open(newline="", encoding="utf-8") as rows:
                found = {row[""]: row["diagnostic_class"] for row in csv.DictReader(rows)}
        except (OSError, KeyError, ValueError) as error:
            raise UserError(f"{table}: the task 'superclasses' needs this table of PTB-XL ({error})") from None
        self._class = {code: SUPERCLASSES.index(name) for code, name in found.items() if name in SUPERCLASSES}

    def stretches(self, record: dict, stream: np.ndarray, seq_len: int) -> Iterator[Stretch]:
        """Yield the segments of a record; none where it has no diagnostic statement."""
        codes = (record.get("labels") or {}).get("scp_codes") or {}
        labels = sorted({self._class[code] for code in codes if code in self._class})
        if labels:
            yield from segments(stream, labels, seq_len)


class Snomed:
    """The SNOMED CT codes in the headers of the PhysioNet/CinC challenges; several may hold."""

    name, multilabel, per_group = "snomed", True, True

    def __init__(self, manifest: dict, src: Path, fewest: int) -> None:
        training = Counter(
            code for record in manifest["records"] if record["split"] == "train" for code in self._codes(record)
        )
        ranked = sorted(training.items(), key=lambda entry: (-entry[1], entry[0]))
        self.classes = tuple(code for code, n in ranked if n >= fewest)[:MOST_CODES]
        if len(self.classes) < 2:
            raise UserError(
                f"data set {manifest['dataset']!r} has {len(self.classes)} codes with at least {fewest} "
                "training records (lines '# Dx:' in the headers); the task 'snomed' needs two (see --min-records)"
            )

    @staticmethod
    def _codes(record: dict) -> list[str]:
        return (record.get("labels") or {}).get("dx") or []

    def stretches(self, record: dict, stream: np.ndarray, seq_len: int) -> Iterator[Stretch]:
        """Yield the segments of a record; a record may have none of the classes."""
        labels = sorted(self.classes.index(code) for code in self._codes(record) if code in self.classes)
        yield from segments(stream, labels, seq_len)


TASKS = {task.name: task for task in (Beats, Superclasses, Snomed)}
