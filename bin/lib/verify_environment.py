"""Check that every framework imports and that Horovod has what it needs; print one line of versions.

Run by bin/setup with the Python of the new environment. Exits 1 and names what is missing.
"""

import importlib
import importlib.metadata
import sys

PACKAGES = ("torch", "deepspeed", "mpi4py", "horovod", "safetensors", "wfdb", "neurokit2", "click")
MODULES = (
    "torch",
    "deepspeed",
    "mpi4py.MPI",
    "horovod.torch",
    "safetensors.torch",
    "wfdb",
    "scipy.signal",
    "tokenizers",
    "click",
)


def main() -> int:
    """Import everything, ask Horovod for its back ends, report."""
    faults = []
    for name in MODULES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 # whatever an import throws is what the user must read
            faults.append(f"{name} does not import: {type(error).__name__}: {error}")
    if not faults:
        horovod = importlib.import_module("horovod.torch")
        if not horovod.mpi_built():
            faults.append("Horovod was built without MPI")
        if not horovod.gloo_built():
            faults.append("Horovod was built without Gloo")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(" ".join(f"{name}={importlib.metadata.version(name)}" for name in PACKAGES))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
