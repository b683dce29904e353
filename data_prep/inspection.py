"""Show what is in a shard set and whether it is whole.

python -m data_prep inspect --dataset mitdb --data DATA [--format json] [--no-verify] [--max-skipped 10]

Exit status: 0 whole; 2 there is no such data set, or its manifest cannot be used; 3 shown, but a shard is damaged;
4 shown and whole, but more of its records were skipped than the limit allows.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import click

from data_prep.cli import fail
from data_prep.plan import check_dataset
from ecg_train.errors import UserError
from ecg_train.shards import ShardSet, manifest_digest, read_manifest


def look(folder: Path, seq_len: int, verify: bool) -> dict:
    """Return the facts about a shard set; under "damage" one line for each split that is not whole.

    Raises UserError where the manifest is missing, unreadable, of another version or incomplete.
    """
    manifest = read_manifest(folder)
    try:
        facts = _facts(manifest)
        holding = [name for name, split in manifest["splits"].items() if split["shards"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"{type(error).__name__} {error}"
        raise UserError(
            f"{folder / 'manifest.json'} lacks a part ({text}); make it anew with: make data DATASET={folder.name}"
        ) from None
    damage = []
    if not verify and manifest_digest(manifest) != manifest["digest"]:  # else every split says so
        damage.append(f"{folder / 'manifest.json'} does not have its digest; convert again")
    for name in holding:
        try:
            facts["splits"][name]["windows"] = ShardSet.open(folder, name, seq_len, verify=verify).n_windows
        except UserError as error:
            if facts["splits"][name]["tokens"] <= seq_len:
                facts["splits"][name]["windows"] = 0
            else:
                damage.append(str(error))
    return facts | {"seq_len": seq_len, "verified": verify, "damage": list(dict.fromkeys(damage))}


def _facts(manifest: dict) -> dict:
    rate = manifest["tokenizer"]["rate_hz"]
    splits = {}
    for name, split in manifest["splits"].items():
        records = [r for r in manifest["records"] if r["split"] == name]
        splits[name] = {
            "records": len(records),
            "patients": len({r["patient"] for r in records}),
            "hours": round(sum(r["samples"] for r in records) / rate / 3600, 3),
            "lead_hours": round(sum(r["samples"] * len(r["leads"]) for r in records) / rate / 3600, 3),
            "tokens": split["tokens"],
            "shards": len(split["shards"]),
            "windows": None,
            "unigram_entropy": split["unigram_entropy"],
        }
    samples = sum(r["samples"] * len(r["leads"]) for r in manifest["records"])
    lost = sum(r["reason"] != "duplicate" for r in manifest["skipped"])  # what a duplicate holds is in the set
    return {
        "dataset": manifest["dataset"],
        "synthetic": manifest["synthetic"],
        "digest": manifest["digest"],
        "mixture": {m["dataset"]: m["weight"] for m in manifest.get("mixture") or ()},
        "rate_hz": rate,
        "splits": splits,
        "leads": dict(Counter(lead for r in manifest["records"] for lead in r["leads"]).most_common()),
        "clipped": sum(r["clipped"] for r in manifest["records"]) / samples if samples else None,
        "gaps": sum(r["gaps"] for r in manifest["records"]) / samples if samples else None,
        "skipped": dict(sorted(Counter(r["reason"] for r in manifest["skipped"]).items())),
        "lost": lost,
        "lost_share": lost / max(1, lost + len(manifest["records"])),
        "wrong_checksum": sum("wrong_checksum" in r for r in manifest["records"]),
        "dropped_leads": dict(
            sorted(Counter(d["reason"] for r in manifest["records"] for d in r.get("dropped", ())).items())
        ),
    }


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def table(facts: dict) -> str:
    """Return the facts as ASCII text; what is not known is an empty cell."""
    from tabulate import tabulate

    kind = "synthetic" if facts["synthetic"] else "recorded"
    head = f"data set {facts['dataset']} ({kind}), {facts['rate_hz']:g} samples per second and lead"
    columns = ["records", "patients", "hours", "lead_hours", "tokens", "shards", "windows", "unigram_entropy"]
    names = [*columns[:-2], f"windows of {facts['seq_len']}", "entropy [nats]"]
    rows = [[name, *(_cell(split[c]) for c in columns)] for name, split in facts["splits"].items()]
    totals = [sum(split[c] or 0 for split in facts["splits"].values()) for c in columns[:-2]]
    rows.append(["all", *(_cell(t) for t in totals), "", ""])
    body = tabulate(
        rows, ["split", *names], tablefmt="github", disable_numparse=True, colalign=["left"] + ["right"] * 8
    )
    share = ", ".join(f"{what} {facts[what]:.4%}" for what in ("clipped", "gaps") if facts[what] is not None)
    lines = [head, "", body, "", f"leads: {_counts(facts['leads'])}", f"samples: {share}"]
    if facts["mixture"]:
        parts = sum(facts["mixture"].values())
        shares = ", ".join(f"{name} {weight / parts:.1%}" for name, weight in facts["mixture"].items())
        lines.append(f"mixture: of the training windows {shares}")
    lines.append(f"skipped records: {_counts(facts['skipped'])} ({facts['lost_share']:.1%} of all, duplicates aside)")
    if facts["wrong_checksum"]:
        lines.append(f"records with a wrong checksum: {facts['wrong_checksum']}")
    lines.append(f"dropped leads: {_counts(facts['dropped_leads'])}")
    state = "DAMAGED" if facts["damage"] else "verified" if facts["verified"] else "sizes fit, contents not verified"
    return "\n".join([*lines, f"digest: {facts['digest']} ({state})"])


def _counts(counts: dict) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items()) or "none"


@click.command("inspect")
@click.option("--dataset", required=True, help="Name of the shard set.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Data folder; the set is DATA/DATASET.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Read every shard, compare SHA-256.")
@click.option("--seq-len", default=256, show_default=True, type=click.IntRange(1), help="Tokens of a window.")
@click.option(
    "--max-skipped",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, 100),
    help="Percent of the records, duplicates aside, that may be skipped.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(dataset: str, data: Path, verify: bool, seq_len: int, max_skipped: float, form: str) -> None:
    """Show what is in a shard set and verify its digests."""
    facts = look(data / check_dataset(dataset), seq_len, verify)
    click.echo(json.dumps(facts, indent=1) if form == "json" else table(facts).encode("ascii", "replace").decode())
    if facts["damage"]:
        sys.stdout.flush()
        fail("; ".join(facts["damage"]), 3)
    if 100 * facts["lost_share"] > max_skipped:
        sys.stdout.flush()
        found = f"{facts['lost']} of {facts['lost'] + sum(s['records'] for s in facts['splits'].values())} records"
        where = data / dataset / "manifest.json"
        fail(
            f"{found} were skipped ({facts['lost_share']:.1%}), more than the limit of {max_skipped:g} %;"
            f" {where} names each with the reason; set MAX_SKIPPED to the percentage that is fine here",
            4,
        )
