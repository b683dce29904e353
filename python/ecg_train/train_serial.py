"""Train with serial: one process, no exchange: the baseline.

one process:  python -m ecg_train.train_serial --dataset mitdb --model tiny
by make:      make run FW=serial GPUS=1
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ecg_train.run import finish, main

FRAMEWORK = "serial"


def run(argv: Sequence[str]) -> int:
    """Train as ``argv`` asks; return the exit code."""
    return main(FRAMEWORK, argv, __doc__ or "")


if __name__ == "__main__":
    finish(run(sys.argv[1:]))
