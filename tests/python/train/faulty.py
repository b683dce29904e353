"""A ddp worker with one planted fault: python faulty.py FAULT FLAG... (see test_equal_work)."""

from __future__ import annotations

import sys

import torch.distributed as dist

from ecg_train import run
from ecg_train.loader import Loader
from ecg_train.order import WindowOrder
from ecg_train.strategies.ddp import DDP


def doubled_rate() -> None:
    plain = DDP.set_learning_rate
    DDP.set_learning_rate = lambda self, rate: plain(self, 2 * rate)


def other_order() -> None:
    plain = WindowOrder.__init__
    WindowOrder.__init__ = lambda self, n_windows, seed: plain(self, n_windows, seed + 1)


def dropped_batch() -> None:
    plain, calls = Loader.next, [0]

    def following(self):
        calls[0] += 1
        if calls[0] == 5:
            plain(self)
        return plain(self)

    Loader.next = following


def summed() -> None:
    plain = DDP.finish

    def finish(self, exchange):
        for parameter in self.model.parameters():
            parameter.grad.mul_(dist.get_world_size())
        return plain(self, exchange)

    DDP.finish = finish


def not_exchanged() -> None:
    plain = DDP.exchange_on
    DDP.exchange_on = lambda self, on: plain(self, False)


def none() -> None:
    pass


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    run.finish(run.main("ddp", sys.argv[2:], __doc__))
