"""The preflight: sound facts pass, each planted fault is found, and real ranks of each launcher agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import MPI, ROOT, free_port, require

from ecg_train.preflight_rules import FAIL, OK, WARN, Asked, judge, table, verdict


def rank(number: int, node: str, **changes: Any) -> dict[str, Any]:
    """Return the facts of a sound rank on a node of two."""
    return {
        "rank": number, "local_rank": number % 2, "world": 4, "host": node, "device": f"cuda:{number % 2}",
        "uuid": f"GPU-{node}-{number % 2}", "cores": [4 * (number % 2) + i for i in range(4)], "transport": "NCCL IB",
        "shared_memory": 1 << 30, "clock": 1000.0 + 0.01 * number, "image": "abc", "code": "def", "dataset": "sha256:1",
        "dataset_error": None, "written": True, "clock_mhz": 1980.0, "max_clock_mhz": 1980.0, "power_cap_w": 700.0,
        "max_power_w": 700.0,
    } | changes  # fmt: skip


def ranks(**changes: Any) -> list[dict[str, Any]]:
    """Return four sound ranks on two nodes, the last one with changes."""
    return [rank(0, "n1"), rank(1, "n1"), rank(2, "n2"), rank(3, "n2", **changes)]


ASKED = Asked(world=4, nodes=2, cores=4)


def test_sound_facts_pass() -> None:
    findings = judge(ranks(), ASKED)
    assert verdict(findings) == OK, table(findings)


@pytest.mark.parametrize(
    ("changes", "check", "wanted"),
    [
        ({"world": 1}, "world size", FAIL),
        ({"rank": 2}, "world size", FAIL),
        ({"host": "n1"}, "nodes", FAIL),
        ({"uuid": "GPU-n2-0"}, "device per rank", FAIL),
        ({"uuid": None, "device": "cpu"}, "device per rank", FAIL),
        ({"cores": [7]}, "cores per rank", FAIL),
        ({"cores": [0, 1, 2, 3]}, "own cores", WARN),
        ({"transport": "NCCL Socket"}, "transport", WARN),
        ({"transport": "gloo over lo (127.0.0.1)"}, "transport", FAIL),
        ({"shared_memory": 1 << 20}, "shared memory", FAIL),
        ({"image": "xyz"}, "image", FAIL),
        ({"image": None}, "image", FAIL),
        ({"code": "xyz"}, "package", FAIL),
        ({"dataset": None, "dataset_error": "not there"}, "data", FAIL),
        ({"dataset": "sha256:2"}, "data", FAIL),
        ({"written": False}, "results", FAIL),
        ({"clock": 1007.0}, "clock skew", WARN),
        ({"power_cap_w": 400.0}, "power cap", WARN),
    ],
    ids=lambda x: " ".join(f"{k}={v}" for k, v in x.items()) if isinstance(x, dict) else None,
)
def test_each_fault_is_found_where_it_is(changes, check, wanted) -> None:
    """One fact of one rank is wrong: the row of that check says so, and says what to do."""
    findings = judge(ranks(**changes), ASKED)
    (row,) = [f for f in findings if f.check == check]
    assert row.verdict == wanted
    assert row.advice
    assert verdict(findings) == (wanted if wanted == FAIL else verdict(findings))


def test_too_few_ranks_are_found() -> None:
    assert verdict(judge(ranks()[:3], ASKED)) == FAIL


def launch(framework: str, world: int, data_dir: Path, folder: Path, **more: str) -> subprocess.CompletedProcess:
    command = [str(ROOT / "bin" / "with-ranks"), sys.executable, "-m", "ecg_train.preflight"]
    if framework in MPI:
        command = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(world), *command]
    else:
        command = [str(ROOT / "bin" / "launch-local"), str(world), *command]
    environ = dict(os.environ, PYTHONPATH=f"{ROOT / 'python'}:{ROOT}", ECG_THREADS="1", ECG_RUN_DIR=str(folder))
    environ |= {"FW": framework, "GPUS": str(world), "NODES": "1", "MODEL": "tiny", "DATASET": "walk", "SEQ": "64"}
    environ |= {"ECG_DATA": str(data_dir), "MASTER_PORT": str(free_port()), "ECG_CORES": "1", "ECG_TIMEOUT": "30"}
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environ | more, timeout=120, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("framework", ["ddp", "horovod", "deepspeed", "mpi"])
def test_real_ranks_are_fit(framework, data_dir, tmp_path) -> None:
    require(framework)
    done = launch(framework, 2, data_dir, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"preflight of {framework}: fit" in done.stdout
    assert "all-reduce" in done.stdout
    assert '"key":"ecg_preflight"' in done.stdout
    assert not list(tmp_path.iterdir()), "the facts of the ranks are taken away"


def test_a_wrong_world_and_missing_data_end_with_a_reason(data_dir, tmp_path) -> None:
    done = launch("ddp", 2, data_dir, tmp_path, GPUS="3")
    assert done.returncode == 2
    assert "world size is 2, wanted 3" in done.stderr
    done = launch("ddp", 2, data_dir, tmp_path, DATASET="nothing")
    assert done.returncode == 1
    assert "not readable on" in done.stdout
    assert "preflight of ddp: not fit" in done.stdout
