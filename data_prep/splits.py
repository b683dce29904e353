"""Who is in which split: always whole patients, and the published split where there is one."""

from __future__ import annotations

import ast
import csv
import hashlib
import re
from pathlib import Path

SPLITS = ("train", "val", "test")

# De Chazal, O'Dwyer and Reilly 2004: the usual inter-patient halves of the MIT-BIH Arrhythmia Database. The four
# records with paced beats belong to neither half and are trained on.
DS1 = "101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230".split()  # noqa: SIM905 - a table of numbers
DS2 = "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234".split()  # noqa: SIM905 - a table of numbers
PACED = "102 104 107 217".split()  # noqa: SIM905 - a table of numbers
MITDB_EXCEPTION = "record 202 (DS2) is the same patient as 201 (DS1): both are trained on, neither is tested on"

# Folders or record names that say whose recording this is: patient001, p10000032, sub-07.
_PATIENT = re.compile(r"(?:patient|subject|subj|sub|pat|p)[-_]?\d{2,}", re.IGNORECASE)


def patient_of(record: str, first_file: str | None) -> str:
    """Guess the patient from a record's path: a part such as "p10000032" (the last that fits), else the record.

    Two headers over one signal file are one patient, hence first_file, the name of the first signal file.
    """
    parts = record.split("/")
    for part in reversed(parts):
        if _PATIENT.fullmatch(part):
            return part
    stem = parts[-1] if first_file in (None, "~") else first_file.rsplit("/", 1)[-1].split(".")[0]
    return "/".join([*parts[:-1], stem or parts[-1]])


class Mitdb:
    """DS1 is trained on but for every fifth patient (validation), DS2 is the test set."""

    rule = "mitdb: de Chazal DS1 (every fifth patient: val) and paced records: train; DS2: test"
    exceptions = (MITDB_EXCEPTION,)

    def patient(self, record: str, first_file: str | None) -> str:
        name = record.rsplit("/", 1)[-1]
        return "201" if name == "202" else name

    def labels(self, record: str) -> dict | None:
        return None

    def assign(self, patients: set[str]) -> dict[str, str]:
        split = dict.fromkeys(DS1 + PACED, "train")
        split |= dict.fromkeys(sorted(DS1)[4::5], "val")
        split |= dict.fromkeys((name for name in DS2 if name != "202"), "test")
        unknown = {p for p in patients if p not in split}
        return split | ByHash().assign(unknown)


class PtbXl:
    """The published folds: 1 to 8 train, 9 val, 10 test; patients from the same table."""

    rule = "ptbxl: strat_fold 1-8 train, 9 val, 10 test"
    exceptions = ()

    def __init__(self, table: Path):
        self._patient: dict[str, str] = {}
        self._split: dict[str, str] = {}
        self._codes: dict[str, str] = {}
        with table.open(newline="", encoding="utf-8", errors="replace") as rows:
            for row in csv.DictReader(rows):
                patient = (row.get("patient_id") or "").split(".")[0]
                fold = (row.get("strat_fold") or "").split(".")[0]
                if not patient or fold not in {str(i) for i in range(1, 11)}:
                    continue
                for column in ("filename_lr", "filename_hr"):
                    if row.get(column):
                        name = row[column].rsplit("/", 1)[-1]
                        self._patient[name] = patient
                        self._codes[name] = row.get("scp_codes") or ""
                # A patient lies in one fold; were it two, training wins over testing on known patients.
                new = {"9": "val", "10": "test"}.get(fold, "train")
                old = self._split.setdefault(patient, new)
                self._split[patient] = min(old, new, key=SPLITS.index)

    def patient(self, record: str, first_file: str | None) -> str:
        return self._patient.get(record.rsplit("/", 1)[-1]) or patient_of(record, first_file)

    def labels(self, record: str) -> dict | None:
        """Return {"scp_codes": {code: likelihood}} as the table has it."""
        try:
            codes = ast.literal_eval(self._codes.get(record.rsplit("/", 1)[-1], ""))
            return {"scp_codes": {str(code): float(likelihood) for code, likelihood in codes.items()}}
        except (ValueError, SyntaxError, TypeError, AttributeError):
            return None

    def assign(self, patients: set[str]) -> dict[str, str]:
        known = {p: self._split[p] for p in patients if p in self._split}
        return known | ByHash().assign(patients - known.keys())


class ByHash:
    """Patients in the order of their names' SHA-256: the first tenth test, the next val, the rest train."""

    rule = "by patient, in the order of SHA-256 of the name: first 10 % test, next 10 % val, rest train"
    exceptions = ()

    def patient(self, record: str, first_file: str | None) -> str:
        return patient_of(record, first_file)

    def labels(self, record: str) -> dict | None:
        return None

    def assign(self, patients: set[str]) -> dict[str, str]:
        order = sorted(patients, key=lambda p: (hashlib.sha256(p.encode(errors="surrogateescape")).digest(), p))
        # Small sets get one patient each for val and test as soon as one is left to train on.
        share = max(1, round(len(order) / 10))
        tests = share if len(order) >= 3 else 0
        vals = share if len(order) >= 2 else 0
        split = dict.fromkeys(order, "train")
        split |= dict.fromkeys(order[:tests], "test")
        return split | dict.fromkeys(order[tests : tests + vals], "val")


def rule_for(dataset: str, src: Path) -> Mitdb | PtbXl | ByHash:
    """Choose the split: the PTB-XL table where the source has one, MIT-BIH by the data set's name, else by hash."""
    table = src / "ptbxl_database.csv"
    if table.is_file():
        return PtbXl(table)
    return Mitdb() if dataset == "mitdb" else ByHash()
