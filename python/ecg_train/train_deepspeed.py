"""Train with deepspeed: DeepSpeed with ZeRO stage 0 to 3 (--zero-stage).

one process:  python -m ecg_train.train_deepspeed --dataset mitdb --model tiny
one node:     bin/launch-local 2 bin/with-ranks python -m ecg_train.train_deepspeed --dataset mitdb
by make:      make run FW=deepspeed GPUS=2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ecg_train.run import finish, main

FRAMEWORK = "deepspeed"


def run(argv: Sequence[str]) -> int:
    """Train as ``argv`` asks; return the exit code."""
    return main(FRAMEWORK, argv, __doc__ or "")


if __name__ == "__main__":
    # Seen: a worker that had logged its end was aborted in C++ ("terminate called without an active exception").
    finish(run(sys.argv[1:]), at_once=True)
