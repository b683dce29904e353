"""Train with ddp: PyTorch DistributedDataParallel.

one process:  python -m ecg_train.train_ddp --dataset mitdb --model tiny
one node:     bin/launch-local 2 bin/with-ranks python -m ecg_train.train_ddp --dataset mitdb
by make:      make run FW=ddp GPUS=2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ecg_train.run import finish, main

FRAMEWORK = "ddp"


def run(argv: Sequence[str]) -> int:
    """Train as ``argv`` asks; return the exit code."""
    return main(FRAMEWORK, argv, __doc__ or "")


if __name__ == "__main__":
    finish(run(sys.argv[1:]))
