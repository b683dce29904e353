"""Gradient buckets over MPI: flat buffers that are all-reduced while the backward pass still runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI
from torch import Tensor, nn

DEFAULT_MB = 8.0


class Buckets:
    """Keep the gradients of ``parameters`` in flat buffers and average each over ``comm`` as soon as it is full.

    The gradients are views of the buffers, so nothing is copied on a CPU; on a GPU each buffer has a pinned twin on
    the host, through which MPI sees it. Parameters are taken in reverse order, in which backward is expected to
    finish them. Reductions start in the order of the buckets, so that all workers start them alike.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], comm: MPI.Comm, megabytes: float | None = None) -> None:
        """Lay out buckets of about ``megabytes`` MiB each."""
        self.comm = comm
        self.passes = 0
        limit = int((megabytes or DEFAULT_MB) * (1 << 20))
        self.flat: list[Tensor] = []
        self.missing: list[int] = []
        self._sizes: list[int] = []
        self._bucket_of: dict[nn.Parameter, int] = {}
        group: list[nn.Parameter] = []
        size = 0
        for parameter in reversed(parameters):
            group.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= limit:
                self._close(group)
                group, size = [], 0
        if group:
            self._close(group)
        self.host = [b if b.device.type == "cpu" else torch.empty_like(b, device="cpu").pin_memory() for b in self.flat]
        self.requests: list[MPI.Request] = []
        self._next = 0
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _close(self, group: list[nn.Parameter]) -> None:
        flat = torch.zeros(sum(p.numel() for p in group), dtype=group[0].dtype, device=group[0].device)
        offset = 0
        for parameter in group:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            self._bucket_of[parameter] = len(self.flat)
            offset += parameter.numel()
        self.flat.append(flat)
        self._sizes.append(len(group))

    def begin(self, passes: int) -> None:
        """Expect ``passes`` backward passes before the exchange; 0: no exchange."""
        self.passes = passes
        self.missing = [size * passes for size in self._sizes]
        self._next = 0

    def _ready(self, parameter: Tensor) -> None:
        if not self.passes:
            return
        self.missing[self._bucket_of[parameter]] -= 1
        while self._next < len(self.flat) and self.missing[self._next] == 0:
            self._start(self._next)
            self._next += 1
        if self.requests:
            MPI.Request.Testall(self.requests)  # MPI moves data only while it is called

    def _start(self, index: int) -> None:
        flat, host = self.flat[index], self.host[index]
        flat.div_(self.comm.size)
        if host is not flat:
            host.copy_(flat)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, host.numpy()))

    def wait(self) -> None:
        """Wait until all averages are in the gradients."""
        if not self.passes:
            return
        assert self._next == len(self.flat), "a parameter got no gradient"
        MPI.Request.Waitall(self.requests)
        self.requests.clear()
        for flat, host in zip(self.flat, self.host, strict=True):
            if host is not flat:
                flat.copy_(host)

    def clear(self) -> None:
        """Set all gradients to zero; they stay views of the buffers."""
        for flat in self.flat:
            flat.zero_()
