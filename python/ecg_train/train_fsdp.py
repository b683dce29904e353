"""Train with fsdp: PyTorch FSDP2, weights and optimizer sharded over the workers.

one process:  python -m ecg_train.train_fsdp --dataset mitdb --model tiny
one node:     bin/launch-local 2 bin/with-ranks python -m ecg_train.train_fsdp --dataset mitdb
by make:      make run FW=fsdp GPUS=2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ecg_train.run import finish, main

FRAMEWORK = "fsdp"


def run(argv: Sequence[str]) -> int:
    """Train as ``argv`` asks; return the exit code."""
    return main(FRAMEWORK, argv, __doc__ or "")


if __name__ == "__main__":
    finish(run(sys.argv[1:]))
