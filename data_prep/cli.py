"""The Click commands. Exit status: 0 done, 1 the work failed, 2 bad request or bad input, 3 see inspect."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import click

from ecg_train.errors import UserError

# Command -> module:attribute, loaded when it is asked for, so that one command's packages do not slow the others.
COMMANDS = {
    "convert": ("data_prep.cli:convert", "Convert a folder of WFDB records to token shards."),
    "datasets": ("data_prep.catalogue_list:command", "List the public data sets, and what is here of them."),
    "examples": ("data_prep.examples:command", "Cut labelled examples for fine-tuning out of a shard set."),
    "fetch": ("data_prep.fetch:command", "Fetch the recordings of a public data set, verified."),
    "inspect": ("data_prep.inspection:command", "Show what is in a shard set and verify its digests."),
    "mix": ("data_prep.mix:command", "Mix shard sets: training draws from several, by weight."),
    "synthetic": ("data_prep.synthetic:command", "Make synthetic ECG, write it as WFDB, and convert it."),
}


class Commands(click.Group):
    """Commands by name, errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        from data_prep.errors import WorkError

        try:
            return super().invoke(ctx)
        except UserError as error:
            fail(str(error), 2)
        except WorkError as error:
            fail(str(error), 1)
        except KeyboardInterrupt:
            click.echo("error: interrupted; run the same command again, it resumes", err=True)
            sys.stdout.flush()
            os._exit(130)  # threads and workers that an interrupt left in any state must not hold us up


def fail(message: str, status: int) -> None:
    """Print one line on stderr and exit."""
    click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(status)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Prepare training data: recordings in WFDB format become token shards."""


@click.command()
@click.option("--dataset", required=True, help="Name of the shard set: a-z, 0-9, '_' and '-'.")
@click.option(
    "--src",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder with the records, searched in depth.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Data folder; the set is OUT/DATASET.")
@click.option("--jobs", type=int, help="Worker processes.  [default: all cores of this process]")
def convert(dataset: str, src: Path, out: Path, jobs: int | None) -> None:
    """Convert the WFDB records below SRC to the shard set OUT/DATASET.

    Every record is converted, or listed in manifest.json with the reason why not. A run that was killed is resumed
    by the same command; a set that is complete and unchanged is left alone.
    """
    from data_prep import convert as conversion

    outcome = conversion.convert(dataset, src, out, jobs)
    manifest = outcome.manifest
    if not outcome.fresh:
        click.echo(f"{dataset}: complete and unchanged, nothing to do ({outcome.folder})")
        return
    click.echo(summary(manifest))


def summary(manifest: dict) -> str:
    """Return a converted set in one line, and a second one where records were skipped."""
    sizes = ", ".join(f"{name} {split['tokens']}" for name, split in manifest["splits"].items())
    lines = [f"{manifest['dataset']}: {len(manifest['records'])} records converted; tokens: {sizes}"]
    reasons: dict[str, int] = {}
    for record in manifest["skipped"]:
        reasons[record["reason"]] = reasons.get(record["reason"], 0) + 1
    if reasons:
        text = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
        lines.append(f"{manifest['dataset']}: {len(manifest['skipped'])} records skipped: {text}")
    return "\n".join(lines)
