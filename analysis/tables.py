"""ASCII and Markdown tables of the rows. A missing value is an empty cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tabulate

tabulate.MIN_PADDING = 0  # two more blanks around every header would make the tables too wide for a screen
WORDS = frozenset(  # headers of columns that hold words and are set to the left
    {"framework", "data", "status", "vs\nbaseline", "equal\nwork", "run", "group", "reason, notes", "field", "value"}
    | {
        "other value",
        "not divided by",
        "fastest there",
        "by repeats",
        "member",
        "dataset",
        "hosts",
        "data set",
        "start",
        "model",
        "Se/+P %\nby class",
    }
)
STYLES = {"table": "simple", "markdown": "github"}


@dataclass(frozen=True)
class Column:
    """Header with its unit, and how a row becomes the text of the cell."""

    head: str
    cell: Callable[[dict[str, Any]], str]


def number(key: str, form: str, scale: float = 1.0) -> Callable[[dict[str, Any]], str]:
    """Return a formatter; a value that is missing gives the empty cell."""

    def cell(row: dict[str, Any]) -> str:
        value = row.get(key)
        return "" if value is None else format(value * scale, form)

    return cell


def text(key: str, words: dict[Any, str] | None = None) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        value = row.get(key)
        if words is not None and value in words:
            return words[value]
        return "" if value is None else str(value)

    return cell


def interval(low: str, high: str, form: str, scale: float = 1.0) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        if row.get(low) is None or row.get(high) is None:
            return ""
        return f"{row[low] * scale:{form}}..{row[high] * scale:{form}}"

    return cell


def _seen(row: dict[str, Any]) -> str:
    seen, world = row.get("workers_seen"), row["world"]
    if seen is None:
        return ""
    return str(seen) if seen == world else f"{seen} of {world} !"


def _trend(row: dict[str, Any]) -> str:
    if row.get("trends") is None:
        return ""
    return f"{row['drift'] * 100:+.1f} %" if row["trends"] else "no"


WHO = [
    Column("framework", text("framework")),
    Column("workers", text("world")),
    Column("nodes", text("nodes")),
    Column("data", text("synthetic", {True: "synthetic", False: "real"})),
]
TIME = [
    *WHO,
    Column("runs ok", lambda r: f"{r['ok_runs']} of {r['runs']}"),
    Column("status", text("status")),
    Column("steps", text("measured_steps")),
    Column("step\nms", number("step_time_s", ".2f", 1e3)),
    Column("p10..p90\nms", interval("step_time_p10_s", "step_time_p90_s", ".2f", 1e3)),
    Column("95 % of\nrepeats ms", interval("step_time_low_s", "step_time_high_s", ".2f", 1e3)),
    Column("tokens/s", number("tokens_per_s", ".0f")),
    Column("model\nGFLOP/s", number("model_flops_per_s", ".2f", 1e-9)),
    Column("MFU\n%", number("mfu", ".2f", 100)),
]


def _speedup(scaling: str) -> list[Column]:
    fraction = "Karp-Flatt" if scaling == "strong" else "serial part\n(Gustafson)"
    law = "Amdahl" if scaling == "strong" else "Gustafson"
    return [
        *WHO,
        Column("ideal", number("ideal", ".3g")),
        Column("speedup", number("speedup", ".3f")),
        Column("95 %", interval("speedup_low", "speedup_high", ".3f")),
        Column("vs\nbaseline", text("vs_baseline")),
        Column("efficiency\n%", number("efficiency", ".1f", 100)),
        Column("overhead\n%", number("overhead", ".1f", 100)),
        Column(fraction, number("serial_fraction", ".4f")),
        Column(f"at twice\n({law})", number("speedup_at_2p", ".2f")),
        Column("speedup\nvs serial", number("speedup_vs_serial", ".3f")),
        Column("equal\nwork", text("equal_work")),
    ]


INDEPENDENT = [
    Column("group", text("group")),
    Column("member", text("member")),
    Column("framework", text("framework")),
    Column("dataset", text("dataset")),
    Column("hosts", text("hosts")),
    Column("workers", text("workers")),
    Column("tokens/s\ntogether", number("tokens_per_s", ".0f")),
    Column("tokens/s\nalone", number("alone_tokens_per_s", ".0f")),
    Column("runs\nalone", text("alone_runs")),
    Column("lost\n%", number("lost", ".1f", 100)),
]
HELD_OUT = [
    Column("data set", text("dataset")),
    Column("framework", text("framework")),
    Column("p", text("world")),
    Column("model", text("model")),
    Column("start", text("start")),
    Column("head\nonly", text("head_only")),
    Column("seed", text("seed")),
    Column("steps", text("steps")),
    Column("examples", text("examples")),
    Column("accuracy\n%", number("accuracy", ".1f", 100)),
    Column("majority\n%", number("majority_accuracy", ".1f", 100)),
    Column("macro\nF1", number("macro_f1", ".3f")),
    Column("majority\nF1", number("majority_macro_f1", ".3f")),
    Column("macro\nAUROC", number("macro_auroc", ".3f")),
    Column("Se/+P %\nby class", text("classes")),
]
PEERS = [
    *WHO,
    Column("step\nms", number("step_time_s", ".2f", 1e3)),
    Column("tokens/s", number("tokens_per_s", ".0f")),
    Column("fastest there", text("fastest_peer")),
    Column("share of\nits tokens/s", number("vs_fastest_ratio", ".3f")),
    Column("95 %", interval("vs_fastest_low", "vs_fastest_high", ".3f")),
    Column("by repeats", text("vs_fastest")),
]
WHERE = [
    *WHO,
    Column("workers\nseen", _seen),
    Column("step\nms", number("step_time_s", ".2f", 1e3)),
    Column("no exchange\nms", number("calibration_s", ".2f", 1e3)),
    Column("exposed\nms", number("exposed_s", ".2f", 1e3)),
    Column("exposed\n%", number("exposed_share", ".2f", 100)),
    Column("contention\n%", number("contention", ".2f", 100)),
    Column("data wait\n%", number("data_share", ".3f", 100)),
    Column("imbalance\nslowest/mean", number("imbalance", ".4f")),
    Column("edge\nms", number("edge_time_s", ".3f", 1e3)),
    Column("still\ntrends", _trend),
]
LOST = [
    *WHO,
    Column("ideal", number("ideal", ".3g")),
    Column("- contention", number("lost_to_contention", ".3f")),
    Column("- data wait", number("lost_to_data_wait", ".3f")),
    Column("- imbalance", number("lost_to_imbalance", ".3f")),
    Column("- exposed\ncommunication", number("lost_to_exposed", ".3f")),
    Column("- remainder", number("lost_to_remainder", ".3f")),
    Column("= speedup", number("speedup", ".3f")),
]
LOSSES = [
    *WHO,
    Column("final loss\nnats", number("final_loss", ".4f")),
    Column("eval loss\nnats", number("eval_loss", ".4f")),
    Column("unigram\nentropy nats", number("unigram_entropy", ".4f")),
    Column("peak memory\nMiB per worker", number("peak_memory_bytes", ".1f", 1 / 2**20)),
    Column("equal\nwork", text("equal_work")),
]
STATUS = [
    Column("run", text("run")),
    Column("data", text("synthetic", {True: "synthetic", False: "real"})),
    Column("group", text("group")),
    Column("status", text("status")),
    Column("steps", text("steps_text")),
    Column("reason, notes", text("said")),
]
REFUSED = [
    Column("group", text("group")),
    Column("not divided by", text("against")),
    Column("field", text("field")),
    Column("value", text("value")),
    Column("other value", text("other")),
]


def render(columns: list[Column], rows: list[dict[str, Any]], style: str) -> str:
    """Return one table. Cells are text already; tabulate must not read numbers out of them."""
    heads = [c.head if style == "table" else c.head.replace("\n", " ") for c in columns]
    cells = [[_one_line(c.cell(row), style) for c in columns] for row in rows]
    align = ["left" if c.head in WORDS else "right" for c in columns]
    return tabulate.tabulate(
        cells, heads, tablefmt=STYLES[style], colalign=align if rows else None, disable_numparse=True
    )


def _one_line(cell: str, style: str) -> str:
    cell = " ".join(cell.split()).encode("ascii", "backslashreplace").decode()
    return cell.replace("|", "\\|") if style == "markdown" else cell


def group_tables(group: dict[str, Any], style: str) -> list[tuple[str, str]]:
    """Return (heading, table) of one group. The baseline is named in the heading of what is divided by it."""
    name, rows = group["group"], group["rows"]
    base = group["baseline_text"]
    out = [
        (f"{name}: step time and throughput", render(TIME, rows, style)),
        (f"{name}: speedup, baseline {base}", render(_speedup(group["scaling"]), rows, style)),
        (f"{name}: where the time goes", render(WHERE, rows, style)),
    ]
    if larger := [r for r in rows if r.get("lost_to_remainder") is not None]:
        out.append((f"{name}: where the speedup goes, baseline {base}", render(LOST, larger, style)))
    if peers := [r for r in rows if r.get("fastest_peer") is not None]:
        out.append((f"{name}: frameworks at the same size", render(PEERS, peers, style)))
    return [*out, (f"{name}: losses and memory", render(LOSSES, rows, style))]
