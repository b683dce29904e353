"""Measure what the container costs: steps inside against outside, start-up, and the image's size by content.

    bin/python bench/bench_image.py [--repeats 3]

One worker on one core. Inside and outside take turns, and each inside launch is divided by the mean of the outside
ones before and after it, so that a drift of the machine cancels. Start-up is from the launch to the end of the first
step, inside less outside. `--srun` adds how long Slurm takes to start one task. Needs Apptainer and the image.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click
from workers import ROOT, WARMUP, Bench, free_port, show, spread

TARGET = 1.02
INSIDE = "/opt/ecg-env/lib/python3*/site-packages"
PARTS = {
    "system, Open MPI": "/usr /etc /var",
    "torch": f"{INSIDE}/torch {INSIDE}/torchgen {INSIDE}/functorch",
    "DeepSpeed": f"{INSIDE}/deepspeed",
    "Horovod": f"{INSIDE}/horovod",
    "the bundle": "/opt/ecg-train",
}


def apptainer() -> list[str]:
    """Return how Apptainer is called here, as bin/lib/image.sh finds out."""
    script = (
        "for name in common check environment image; do source bin/lib/$name.sh; done; "
        'set_apptainer exec; printf "%s\\n" "${apptainer[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr.strip())
    return done.stdout.split()


def launch(bench: Bench, prefix: list[str], python: str, package: str, model: str) -> tuple[float, float]:
    """Run one worker; return its median step and the seconds from the launch to the end of its first step."""
    run_dir = bench.folder / f"image-{time.time_ns()}"
    flags = [
        *bench.flags,
        "--model",
        model,
        "--steps",
        "12",
        "--batch",
        "4",
        "--calibration-steps",
        "0",
        "--run-dir",
        str(run_dir),
    ]
    environ = dict(
        os.environ, PYTHONPATH=f"{package}/python:{package}", MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1"
    )
    command = ["taskset", "-c", "0", *prefix, python, "-m", "ecg_train.train_serial", *flags]
    begun = time.time()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command[:6])} ... ended with {done.returncode}: {done.stderr[-1500:]}")
    lines = [json.loads(line) for line in (run_dir / "rank0.jsonl").open()]
    shutil.rmtree(run_dir)
    steps = [line for line in lines if line["key"] == "tracked_stats"]
    return statistics.median(s["value"]["step_time"] for s in steps[WARMUP:]), steps[0]["time_ms"] / 1e3 - begun


def sizes(call: list[str], image: Path) -> list[dict]:
    """Return the megabytes of each part of the image, unpacked, and of the file."""
    script = "; ".join(f"du -scm {paths} 2>/dev/null | tail -n 1 | cut -f1" for paths in PARTS.values())
    script += "; du -scm /opt/ecg-env | tail -n 1 | cut -f1"
    done = subprocess.run(
        [*call, "exec", "--cleanenv", "--no-home", str(image), "bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    *parts, environment = (int(text) for text in done.stdout.split())
    found = dict(zip(PARTS, parts, strict=True))
    found["other Python packages"] = environment - found["torch"] - found["DeepSpeed"] - found["Horovod"]
    rows = [{"what": f"size: {name}", "MB": size} for name, size in found.items()]
    return [*rows, {"what": "size: the image file, compressed", "MB": round(image.stat().st_size / 1e6)}]


def srun_seconds(repeats: int) -> list[float]:
    """Return how long srun takes to start one task that does nothing."""
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        subprocess.run(["srun", "--ntasks=1", "true"], check=True, capture_output=True)
        taken.append(time.perf_counter() - begun)
    return taken


@click.command()
@click.option("--repeats", default=3, show_default=True)
@click.option("--model", default="small", show_default=True)
@click.option("--image", type=click.Path(path_type=Path), help="[default: images/ecg-train-cpu.sif]")
@click.option("--srun", is_flag=True, help="Also measure srun.")
@click.option("--out", type=click.Path(path_type=Path), help="CSV file.")
def main(repeats: int, model: str, image: Path | None, srun: bool, out: Path | None) -> None:
    """Measure steps inside against outside, start-up, and sizes."""
    image = image or Path(os.environ.get("ECG_IMAGE") or ROOT / "images" / "ecg-train-cpu.sif")
    if not image.exists():
        click.echo(f"skipped: there is no image at {image}; make image builds it")
        return
    if not (shutil.which("apptainer") or shutil.which("singularity")):
        click.echo("skipped: Apptainer is not installed; as root on Debian: bin/install-apptainer")
        return
    call = apptainer()
    rows: list[dict] = []
    with Bench([]) as bench:
        inside = [*call, "exec", "--no-home", "--bind", str(bench.folder), str(image)]
        launch(bench, inside, "/opt/ecg-env/bin/python", "/opt/ecg-train", model)
        before = launch(bench, [], sys.executable, str(ROOT), model)
        ratios, starts = [], []
        for _ in range(repeats):
            there = launch(bench, inside, "/opt/ecg-env/bin/python", "/opt/ecg-train", model)
            after = launch(bench, [], sys.executable, str(ROOT), model)
            ratios.append(there[0] / statistics.mean((before[0], after[0])))
            starts.append(there[1] - statistics.mean((before[1], after[1])))
            before = after
    ratio = statistics.median(ratios)
    what = f"step inside / outside ({model}, 1 core)"
    met = "yes" if ratio <= TARGET else "no"
    rows.append({"what": what, "value": f"{ratio:.3f}", "range": spread(ratios), "target": TARGET, "met": met})
    rows.append(
        {
            "what": "start to first step, inside less outside, s",
            "value": f"{statistics.median(starts):.2f}",
            "range": spread(starts),
        }
    )
    if srun:
        taken = srun_seconds(repeats)
        rows.append(
            {"what": "srun of one empty task, s", "value": f"{statistics.median(taken):.2f}", "range": spread(taken)}
        )
    rows.extend({"what": row["what"], "value": f"{row['MB']} MB"} for row in sizes(call, image))
    show(rows, out)


if __name__ == "__main__":
    main()
