"""How the C library keeps memory, for strategies that gather and free whole buffers of weights at every step."""

from __future__ import annotations

import ctypes

# glibc's malloc.h: the names of mallopt's first argument.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let freed memory stay with the process instead of going back to the system; return whether that was possible.

    Buffers of megabytes are otherwise unmapped when they are freed and mapped anew, page by page and zeroed, at the
    next step, which under FSDP on a CPU is a visible part of it. Outside glibc nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1))
