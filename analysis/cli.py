"""Command line: `python -m analysis report`.

Tables and data go to standard output, messages to standard error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from analysis import report as reports
from analysis.flat import runs_csv
from analysis.ingest import NOTHING, Source
from analysis.scaling import SELF
from ecg_train.errors import UserError

BAD_REQUEST, FAILED, DAMAGED = 2, 1, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Turn the logs of training runs into scaling tables."""


@cli.command()
@click.argument("paths", nargs=-1, metavar="[PATH...|-]")
@click.option("--results", metavar="DIR", envvar="ECG_RESULTS", help="Folder that holds runs/  [env ECG_RESULTS]")
@click.option("-o", "--output", metavar="DIR", help="Where the files go  [RESULTS/report; with PATHs: nowhere]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "markdown"]),
    default="table",
    show_default=True,
    help="What standard output shows; csv is runs.csv",
)
@click.option(
    "--warmup", default="auto", show_default=True, metavar="auto|N", help="Steps to leave out; auto: as each run states"
)
@click.option(
    "--baseline",
    default=SELF,
    show_default=True,
    metavar="self|FW",
    help="Divide by the framework's own smallest size, or by FW's",
)
@click.option(
    "--across",
    multiple=True,
    metavar="FIELD",
    help="Let this field differ within a table, such as code_digest; repeatable",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes  [the cores that may be used]")
@click.option("--strict", is_flag=True, help="Exit with 1 unless every run is ok, comparable and did equal work")
def report(
    paths: tuple[str, ...],
    results: str | None,
    output: str | None,
    form: str,
    warmup: str,
    baseline: str,
    across: tuple[str, ...],
    jobs: int | None,
    strict: bool,
) -> None:
    """Read runs, write runs.csv, steps.csv and report.txt, print the tables.

    Reads RESULTS/runs/*/, or the given PATHs: run folders, logs, JSONL files, - for standard input.

    Exit status: 0 ok; 1 --strict was not met; 2 bad request, nothing written; 3 the report is whole, but some
    input was unreadable or odd (one line each on standard error).
    """
    drop = _warmup(warmup)
    target = Path(output) if output else Path(results) / "report" if results and not paths else None
    beside = _writable_parent(target) if target else None
    with reports.scratch(beside) as folder:
        sources = _sources(paths, results, folder)
        made = {name: folder / f"out-{name}" for name in ("runs.csv", "steps.csv", "report.txt")}
        if target:
            with open(made["steps.csv"], "wb") as steps:
                found = reports.build(sources, folder, drop, baseline, jobs, frozenset(across), steps)
            made["runs.csv"].write_text(runs_csv(found.rows), encoding="utf-8")
            made["report.txt"].write_text(reports.as_text(found), encoding="ascii")
            reports.put(target, made)
        else:
            found = reports.build(sources, folder, drop, baseline, jobs, frozenset(across))
    click.echo(_shown(found, form), nl=False)
    for problem in found.problems:
        click.echo(f"warning: {problem}", err=True)
    if target:
        click.echo(f"wrote {target}/: {', '.join(made)}", err=True)
    if found.problems:
        sys.exit(DAMAGED)
    if strict and not reports.healthy(found):
        click.echo("error: --strict: some run is not ok, not comparable or did other work; see the tables", err=True)
        sys.exit(FAILED)


def _shown(found: reports.Report, form: str) -> str:
    if form == "csv":
        return runs_csv(found.rows)
    if form == "json":
        return reports.as_json(found)
    return reports.as_text(found, form)


def _warmup(value: str) -> int | None:
    if value == "auto":
        return None
    if not (value.isascii() and value.isdigit()):
        raise UserError(f"--warmup is {value!r}, wanted auto or a number of steps such as --warmup 5")
    return int(value)


def _writable_parent(target: Path) -> Path:
    """Return a folder on the file system of `target` for what is not finished yet."""
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file, wanted a folder: give another one with -o")
    parent = next(p for p in [target, *target.absolute().parents] if p.is_dir())
    if not os.access(parent, os.W_OK):
        raise UserError(f"{parent} cannot be written: give another folder with -o")
    return parent


def _sources(paths: tuple[str, ...], results: str | None, folder: Path) -> list[Source]:
    """Return the files to read. Raises UserError when there is none or a path does not exist."""
    out: list[Source] = []
    if not paths:
        if not results:
            raise UserError("no input: give --results DIR, set ECG_RESULTS, or name files or run folders")
        runs = Path(results) / "runs"
        if not runs.is_dir():
            raise UserError(
                f"{runs} is no folder: give --results a folder that holds runs/, or start one with make run"
            )
        for run in sorted(p for p in runs.iterdir() if p.is_dir()):
            out.extend(_run_folder(run, named=False))
        if not out:
            raise UserError(f"{runs} holds no run: start one with make run")
    for path in dict.fromkeys(paths):
        if path == "-":
            kept = folder / "stdin"
            with open(kept, "wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            out.append(Source(kept, "<stdin>", "stdin", False))
        elif (given := Path(path)).is_dir():
            out.extend(_run_folder(given, named=True))
        elif given.is_file():
            label = given.parent.name if given.name == "log" else given.name
            out.append(Source(given, str(given), label or given.name, given.suffix == ".jsonl"))
        else:
            raise UserError(f"{path} does not exist: give a log, a JSONL file, a run folder or - for standard input")
    return out


def _run_folder(run: Path, named: bool) -> list[Source]:
    files = [p for p in [run / "log", *sorted(run.glob("rank*.jsonl"))] if p.is_file()]
    if named and not files:
        raise UserError(
            f"{run} holds neither log nor rank*.jsonl: give a run folder, or --results for a folder of runs"
        )
    if not files:  # it keeps a row all the same
        return [Source(NOTHING, str(run), run.name, False)]
    return [Source(p, str(p), run.resolve().name, p.suffix == ".jsonl") for p in files]


def main() -> None:
    """Run the command; a UserError is one line on standard error and exit status 2."""
    try:
        cli(standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _fail(error.format_message() + "; see --help")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}: nothing was written; free space or give another folder with -o")


def _fail(message: str) -> None:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(BAD_REQUEST)
