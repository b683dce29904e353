"""The command line as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prep_records import beats, write_record

ROOT = Path(__file__).resolve().parents[3]
ENV = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"}


@pytest.fixture
def prep() -> Callable[..., subprocess.CompletedProcess]:
    """Run ``python -m data_prep`` with arguments."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "data_prep", *map(str, arguments)]
        return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=120, **options)

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of eight good records."""
    for i in range(8):
        write_record(tmp_path / "raw", f"r{i}", [beats(20 + i, 250, i), beats(20 + i, 250, 90 + i, 0.5)])
    return tmp_path / "raw"


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of real recordings."""
    if not os.environ.get("ECG_RAW"):
        pytest.skip("ECG_RAW is not set: no real recordings")
    return Path(os.environ["ECG_RAW"]).resolve()
