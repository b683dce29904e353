"""What one rank can tell about itself and its node before a run; every fact is a plain value or None."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from ecg_train.errors import UserError
from ecg_train.facts import code_digest
from ecg_train.shards import ShardSet, dataset_folder

MCA = re.compile(r"mca_(pml|btl|mtl)_([a-z0-9]+)\.so")
NCCL = re.compile(r"NET/(IB|Socket|OFI|[A-Za-z]+)|via (P2P|SHM)|\[send\] via NET/(\w+)")


def node_facts() -> dict[str, Any]:
    """Return host, cores that this rank may use, free shared memory in bytes, and the clock in seconds."""
    return {
        "host": platform.node(),
        "cores": sorted(os.sched_getaffinity(0)),
        "shared_memory": shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
        "clock": time.time(),
        "image": os.environ.get("ECG_IMAGE_DIGEST") or None,
        "code": code_digest(),
    }


def data_facts(folder: Path, dataset: str, seq_len: int) -> dict[str, Any]:
    """Return the digest of the data set as this rank sees it, or why it cannot be read."""
    try:
        shards = ShardSet.open(dataset_folder(folder, dataset), "train", seq_len)
    except (UserError, OSError) as error:
        return {"dataset": None, "dataset_error": str(error)}
    return {"dataset": shards.digest, "dataset_error": None}


def gpu_facts(index: int | None) -> dict[str, Any]:
    """Return UUID, clocks and power cap of a GPU by nvidia-smi; all None on a CPU or where it does not answer."""
    empty = dict.fromkeys(("uuid", "clock_mhz", "max_clock_mhz", "power_cap_w", "max_power_w"))
    if index is None or not shutil.which("nvidia-smi"):
        return empty
    query = "uuid,clocks.sm,clocks.max.sm,power.limit,power.max_limit"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    which = visible[index] if index < len(visible) and visible[index] else str(index)
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        values = [value.strip() for value in done.stdout.strip().split(",")]
    except (OSError, subprocess.SubprocessError):
        return empty
    numbers = [float(value) if re.fullmatch(r"[0-9.]+", value) else None for value in values[1:]]
    return dict(zip(empty, [values[0], *numbers], strict=False))


def interface(address: str) -> str | None:
    """Return "name (address)" of the interface by which ``address`` is reached from here; None where none is."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return None
    name = next((name for _, name in socket.if_nameindex() if _address(name) == own), "?")
    return f"{name} ({own})"


def _address(name: str) -> str | None:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(packed[20:24])


def mpi_components() -> str | None:
    """Return the transports that Open MPI kept loaded, such as "btl tcp vader, pml ob1"; None outside of MPI."""
    found: dict[str, set[str]] = {}
    for kind, name in MCA.findall(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")):
        found.setdefault(kind, set()).add(name)
    return ", ".join(f"{kind} {' '.join(sorted(names))}" for kind, names in sorted(found.items())) or None


def nccl_transport(log: Path) -> str | None:
    """Return what NCCL's own log says that it uses, such as "IB" or "Socket"; None where there is no log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = {next(part for part in match if part) for match in NCCL.findall(text)}
    return " ".join(sorted(found)) or None
