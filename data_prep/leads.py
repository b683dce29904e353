"""Which channels of a record are ECG, and the factor of their unit."""

from __future__ import annotations

import re

from ecg_train.tokens import canonical_lead

# Factor to millivolt. No unit means millivolt (header(5)); "NU" and the like count only for names we know as leads.
VOLTS = {
    "": 1.0,
    "mv": 1.0,
    "uv": 1e-3,
    "\u00b5v": 1e-3,
    "\u03bcv": 1e-3,
    "v": 1e3,
    "nv": 1e-6,
    "millivolt": 1.0,
    "millivolts": 1.0,
}
VOLTS |= {"microvolt": 1e-3, "microvolts": 1e-3, "volt": 1e3, "volts": 1e3}
NO_UNIT = ("nu", "adu", "adc", "lsb", "unitless", "a.u.", "au", "unknown", "1")

# Other things that monitors and sleep laboratories record; some of them in millivolt.
_NOT_ECG = re.compile(
    r"abp|\bart\b|blood|\bbp\b|\bcvp|\bpap\b|\bp[1-9]\b|\bicp\b|nibp|nbp|pressure|pleth|ppg|\bresp|airflow|\bflow|"
    r"nasal|chest|abdo|thor|snore|spo2|\bs[aop]+2\b|\bo2\b|co2|sat\b|\beeg|\beog|\bemg|\beda\b|gsr|scg|bcg|pcg|phono|"
    r"sound|\bacc|accel|gyro|temp|\bhr\b|pulse|\brate\b|event|marker|\btime|trigger|annot|position|light|stim|"
    r"\b[cfo][34z1-2]-[am][12]\b|impedance|\bsv\b|volume|force|glucose|uterine|\bua\b|\bfhr\b|pacer?\b|status|battery",
    re.IGNORECASE,
)


def millivolts(name: str, units: str) -> float | None:
    """Return the factor from a channel's unit to millivolt; None where the channel is no ECG.

    A channel is ECG where its name is a lead that we know and its unit is a voltage or none at all, or where its
    unit is a voltage (or absent) and its name does not sound like anything else.
    """
    factor = VOLTS.get(units.strip().lower())
    if canonical_lead(name) is not None:
        return factor if factor is not None else 1.0 if units.strip().lower() in NO_UNIT else None
    if factor is None or _NOT_ECG.search(name.replace("_", " ")):
        return None
    return factor
