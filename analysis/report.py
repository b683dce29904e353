"""From files to a report: read, merge, compare, write."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import signal
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from analysis import compare, held_out, independent, measure, rules, scaling, tables
from analysis.flat import run_rows
from analysis.ingest import FileResult, Source, read_files, size_of, workers
from analysis.runs import OK, Run, Story, gather
from ecg_train.errors import UserError

WIDTH = 150  # of running text in the tables' report


@dataclass
class Report:
    """All that was found, as raw numbers; `problems` are lines for a person."""

    runs: list[Run] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of runs.csv
    rules: list[str] = field(default_factory=list)
    independent: list[dict[str, Any]] = field(default_factory=list)  # members of groups that ran side by side
    held_out: list[dict[str, Any]] = field(default_factory=list)  # tests of fine-tuned models


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Give a folder for spill files beside the output, and remove it whatever happens, SIGTERM included."""

    def stop(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    folder = Path(tempfile.mkdtemp(prefix=".report-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def build(
    sources: list[Source],
    folder: Path,
    warmup: int | None = None,
    baseline: str = scaling.SELF,
    jobs: int | None = None,
    across: frozenset[str] = frozenset(),
    steps_to: BinaryIO | None = None,
) -> Report:
    """Read `sources` and return the report; lines of steps.csv go to `steps_to`. Raises OSError."""
    collecting = gc.isenabled()
    gc.disable()  # rows make no cycles; the collector would walk through all of them again and again (so in workers)
    pool = workers(jobs, sum(map(size_of, sources)))
    try:
        files = read_files(sources, folder, pool)
        stories = gather(files)
        _merge_all(stories, files, folder, warmup, pool)
        if steps_to is not None:
            _write_steps(list(stories.values()), steps_to, pool)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if collecting:
            gc.enable()
    report = Report(rules=rules.text("auto" if warmup is None else str(warmup), across))
    report.problems = [p for f in files for p in f.problems]
    for story in stories.values():
        story.settle()
    report.runs = [s.run for s in stories.values()]
    groups = compare.groups(report.runs, across)
    known = sorted({str(r.identity.get("framework")) for g in groups for r in g.runs})
    if baseline != scaling.SELF and baseline not in known:
        raise UserError(f"--baseline is {baseline!r}, there is: {', '.join(known) or 'no run with an identity'}")
    compare.adopt(groups, report.runs)
    report.refused = compare.refusals(groups)
    work = compare.equal_work(report.runs)
    report.groups = [scaling.table(g, work, baseline) for g in groups]
    report.independent = independent.rows(report.runs)
    report.held_out = held_out.rows(report.runs)
    report.rows = run_rows(report.runs, report.groups, groups, work)
    return report


def _merge_all(
    stories: dict[str, Story],
    files: list[FileResult],
    folder: Path,
    warmup: int | None,
    pool: ProcessPoolExecutor | None,
) -> None:
    """Merge the workers of each run, some runs per task, and note what is odd about them."""
    found = measure.sources_of(files)
    batches: list[list[measure.Job]] = []
    ordered = list(stories.items())
    size = max(1, min(64, len(ordered) // 8))
    for number, at in enumerate(range(0, len(ordered), size)):
        batch = []
        for name, story in ordered[at : at + size]:
            run = story.close()
            drop = warmup if warmup is not None else run.identity.get("timing_warmup")
            drop = drop if isinstance(drop, int) else None
            job = measure.Job(name, run.world, drop, folder / f"merged-{number:06d}")
            job.steps, job.calibration = measure.step_kinds(found, name)
            job.resumed = frozenset(story.resumed)
            batch.append(job)
        batches.append(batch)
    done = (map if pool is None else pool.map)(measure.measure, batches)
    results = [result for batch in done for result in batch]
    for (_, story), (steps, timing) in zip(ordered, results, strict=True):
        story.run.steps, story.run.timing = steps, timing
        story.run.notes.extend(rules.step_notes(story.run))


def _write_steps(stories: list[Story], out: BinaryIO, pool: ProcessPoolExecutor | None) -> None:
    """Write steps.csv in the order of runs and steps; a few blocks are formatted ahead, not all."""
    out.write(measure.STEPS_HEADER.encode())
    tasks = (
        (story.run.run, story.run.steps.spill, story.run.steps.start + at, min(rows, story.run.steps.count - at))
        for story in stories
        for rows in [measure.FORMAT_ROWS]
        for at in range(0, story.run.steps.count, rows)
    )
    if pool is None:
        for task in tasks:
            out.write(measure.format_steps(*task))
        return
    waiting = [pool.submit(measure.format_steps, *task) for task in islice(tasks, 6)]
    while waiting:
        out.write(waiting.pop(0).result())
        waiting.extend(pool.submit(measure.format_steps, *task) for task in islice(tasks, 1))


def as_json(report: Report) -> str:
    """Return everything as one JSON object; missing is null."""
    body = {
        "rules": report.rules,
        "groups": report.groups,
        "runs": report.rows,
        "independent": report.independent,
        "held_out": [{k: v for k, v in row.items() if k != "classes"} for row in report.held_out],
        "refused": report.refused,
        "problems": report.problems,
    }
    return json.dumps(_strict(body), indent=1, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    """Return `value` for strict JSON: a number that is not finite becomes a string, as in the log."""
    if isinstance(value, dict):
        return {k: _strict(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_strict(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _item(line: str, style: str) -> str:
    if style == "markdown":
        return f"- {line}"
    return textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)


def as_text(report: Report, style: str = "table") -> str:
    """Return the report for a person: tables by group, refusals, status, unreadable input, the rules."""
    mark = "### " if style == "markdown" else ""
    parts = []
    for group in report.groups:
        shown = "; ".join(f"{k} {v}" for k, v in group["experiment"].items() if k in rules.HEADLINE and v is not None)
        title = f"{group['scaling'].capitalize()} scaling, group {group['group']}: {shown}"
        parts.append(f"## {title}" if mark else textwrap.fill(title, WIDTH))
        parts.extend(f"{mark}{heading}\n\n{table}" for heading, table in tables.group_tables(group, style))
    if report.independent:
        body = tables.render(tables.INDEPENDENT, report.independent, style)
        parts.append(f"{mark}Nodes used independently: together against alone\n\n{body}")
    if report.held_out:
        body = tables.render(tables.HELD_OUT, report.held_out, style)
        parts.append(f"{mark}Fine-tuned models on held-out recordings\n\n{body}")
    if report.refused:
        body = tables.render(tables.REFUSED, report.refused, style)
        parts.append(f"{mark}Not divided by each other: these fields differ\n\n{body}")
    owner = {row["run"]: row for row in report.rows}
    status = [rules.status_row(run, owner[run.run]) for run in report.runs]
    parts.append(f"{mark}Status of every run\n\n{tables.render(tables.STATUS, status, style)}")
    if report.problems:
        parts.append(f"{mark}Input that is damaged or odd\n\n" + "\n".join(_item(p, style) for p in report.problems))
    parts.append(f"{mark}Rules\n\n" + "\n".join(_item(line, style) for line in report.rules))
    return ("\n\n".join(parts) + "\n").encode("ascii", "backslashreplace").decode()


def put(folder: Path, made: dict[str, Path]) -> None:
    """Move finished files into place; each is whole or as it was before."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in made.items():
        os.replace(path, folder / name)


def healthy(report: Report) -> bool:
    """Say what --strict asks: every run ended well, nothing was refused, all did equal work."""
    return (
        all(r.status == OK for r in report.runs)
        and not report.refused
        and all(r["equal_work"] != "no" for r in report.rows)
    )
