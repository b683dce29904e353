"""Which runs may be divided by which, and whether they did the same work.

Two runs are put into one table only if every field of their identity agrees but those of the intended axis:
- FREE: the number of workers and what follows from it or from the moment: nodes, hosts, job, repeat, tokens per
  step, the batch that scaling lets grow (per worker in strong scaling, global in weak), the git revision.
- LINE: what makes a framework the one it is. Within a line these agree; across lines they are the axis of
  comparison. Accumulation is not free: it changes the size of a micro-batch and how often gradients are
  exchanged, so that a quotient would show two effects at once. Image and code digest must agree too: other code is
  another experiment, while a revision also changes with the docs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.runs import OK, Run

LINE = ("framework", "framework_version", "backend", "zero_stage")
FREE = frozenset(["world", "nodes", "hosts", "job_id", "repeat", "tokens_per_step", "git_revision"])
BATCH = {"strong": "worker_batch", "weak": "global_batch"}
# Fields that decide the losses. How the batch is cut over workers and micro-batches, and with what, is not
# among them.
WORK = (
    "mode", "model", "parameters", "dataset", "dataset_digest", "synthetic", "seq_len", "global_batch", "precision",
    "seed", "steps", "learning_rate", "lr_warmup", "lr_horizon", "min_lr_ratio", "weight_decay", "clip",
)  # fmt: skip
EARLY = 20
# Absolute, in nats. bf16 keeps 8 bits, 2**-8 relative: sums in another order move a loss of about 5 nats by
# some 1e-2.
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
# Relative. A gradient that is summed, or not exchanged at all, has another norm, while AdamW hides its scale.
NORM_TOLERANCE = {"fp32": 1e-2, "bf16": 1e-1}


def same(a: Any, b: Any) -> bool:
    """Compare two values of an identity; 1 and 1.0 are the same, 1 and true are not."""
    return _canonical(a) == _canonical(b)


def _canonical(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def experiment(identity: dict[str, Any], across: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the fields on which all runs of a table agree; `across` are fields that the user lets differ."""
    free = FREE | across | set(LINE) | {BATCH.get(identity.get("scaling"), "")}
    return {k: _canonical(v) for k, v in identity.items() if k not in free}


def line(identity: dict[str, Any]) -> tuple[str, ...]:
    return tuple(_canonical(identity.get(k)) for k in LINE)


@dataclass
class Group:
    """Runs that may stand in one table."""

    name: str
    scaling: str
    fields: dict[str, str]
    runs: list[Run] = field(default_factory=list)


def groups(runs: Iterable[Run], across: frozenset[str] = frozenset()) -> list[Group]:
    """Sort identified runs into groups; strong scaling first, then in order of appearance."""
    found: dict[str, Group] = {}
    for run in runs:
        if not run.identified or not isinstance(run.world, int) or run.world < 1 or run.launch.get("group"):
            continue  # one of a group that ran side by side is no repeat of a run alone
        fields = experiment(run.identity, across)
        key = json.dumps(fields, sort_keys=True)
        scaling = str(run.identity.get("scaling") or "unstated")
        found.setdefault(key, Group("", scaling, fields)).runs.append(run)
    ordered = sorted(found.values(), key=lambda g: g.scaling)
    count: dict[str, int] = {}
    for group in ordered:
        count[group.scaling] = count.get(group.scaling, 0) + 1
        group.name = f"{group.scaling}-{count[group.scaling]}"
    return ordered


def adopt(all_groups: list[Group], runs: Iterable[Run]) -> None:
    """Put runs that never stated their identity into the group which their launch line fits, so that they
    keep a row.
    """
    for run in runs:
        launch = run.identity
        if run.identified or not launch or not isinstance(run.world, int):
            continue
        asked = {k: _canonical(v) for k, v in launch.items() if k not in FREE | set(LINE) | {"batch"}}
        batch = _canonical(launch.get("batch"))
        size = "global_batch" if launch.get("scaling") == "strong" else "worker_batch"
        for group in all_groups:
            if all(group.fields.get(k) == v for k, v in asked.items()) and group.fields.get(size) == batch:
                group.runs.append(run)
                break


def refusals(all_groups: list[Group]) -> list[dict[str, str]]:
    """Name, for each group after the first of its scaling, the nearest earlier one and the fields that keep
    them apart.
    """
    out = []
    for i, group in enumerate(all_groups):
        earlier = [g for g in all_groups[:i] if g.scaling == group.scaling]
        if not earlier:
            continue
        apart = [(_differences(g.fields, group.fields), g) for g in earlier]
        fields, nearest = min(apart, key=lambda a: len(a[0]))
        out.extend(
            {
                "group": group.name,
                "against": nearest.name,
                "field": name,
                "value": group.fields.get(name, "not stated"),
                "other": nearest.fields.get(name, "not stated"),
            }
            for name in fields
        )
    return out


def _differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)]


@dataclass
class Work:
    """Outcome of the equal-work check: "reference", "yes", "no" or "-" (nothing to compare with)."""

    answer: str
    reference: str = ""
    deviation: float | None = None
    step: int | None = None
    compared: int = 0
    why: str = ""

    def reason(self) -> str:
        """Return why the work was not equal; empty where it was, or where nothing was compared."""
        if self.answer != "no":
            return ""
        what = self.why or f"{self.deviation:.1e}"
        return f"{what} @ {self.step}" if self.step else what

    def __str__(self) -> str:
        if self.answer == "no":
            return f"no ({self.reason()})"
        short = f" ({self.compared} steps)" if self.answer == "yes" and self.compared < EARLY else ""
        return self.answer + short


def equal_work(runs: list[Run]) -> dict[str, Work]:
    """Compare each run's first losses with those of the reference: serial if there, else the smallest world,
    then the first met.

    The reference has the same global batch, so in weak scaling most worlds have none unless a strong run or
    serial offers one.
    """
    out = {run.run: Work("-") for run in runs}
    experiments: dict[str, list[Run]] = {}
    for run in runs:
        if run.identified and run.steps.early:
            key = json.dumps([_canonical(run.identity.get(k)) for k in WORK])
            experiments.setdefault(key, []).append(run)
    for members in experiments.values():
        chosen = {run.run: min(members, key=lambda m, run=run: _reference_order(m, run)) for run in members}
        for run in members:
            reference = chosen[run.run]
            if reference is not run:
                out[run.run] = _compare(run, reference, TOLERANCE.get(str(run.identity.get("precision"))))
                out[reference.run] = Work("reference", reference.run)
    return out


def _reference_order(candidate: Run, run: Run) -> tuple[bool, bool, bool, bool, int]:
    """Sort the best reference of `run` first; one of the same code goes before one of other code."""
    return (
        candidate.status != OK,
        len(candidate.steps.early) < EARLY,
        candidate.identity.get("framework") != "serial",
        candidate.identity.get("code_digest") != run.identity.get("code_digest"),
        candidate.world or 0,
    )


def _compare(run: Run, reference: Run, tolerance: float | None) -> Work:
    common = sorted(run.steps.early.keys() & reference.steps.early.keys())
    if not common or tolerance is None:
        return Work("-")
    apart = {s: abs(run.steps.early[s] - reference.steps.early[s]) for s in common}
    worst = max(common, key=lambda s: apart[s])
    found = Work("yes" if apart[worst] <= tolerance else "no", reference.run, apart[worst], worst, len(common))
    # What a step read comes first: with other windows the losses cannot agree, and that is why.
    mine, theirs = run.steps, reference.steps
    other = [s for s in common if s in mine.seen and s in theirs.seen and mine.seen[s] != theirs.seen[s]]
    if other:
        return replace(found, answer="no", step=other[0], why="other windows")
    if found.answer == "no":
        return found
    norms = [s for s in common if s in mine.norms and s in theirs.norms]
    limit = NORM_TOLERANCE[str(run.identity.get("precision"))]
    unlike = [s for s in norms if abs(mine.norms[s] - theirs.norms[s]) > limit * abs(theirs.norms[s])]
    if unlike:
        ratio = mine.norms[unlike[0]] / theirs.norms[unlike[0]] if theirs.norms[unlike[0]] else float("inf")
        return replace(found, answer="no", step=unlike[0], why=f"gradient norm x {ratio:.3g}")
    whole = (mine.first, mine.last, mine.count) == (theirs.first, theirs.last, theirs.count)
    if whole and None not in (mine.all_seen, theirs.all_seen) and mine.all_seen != theirs.all_seen:
        return replace(found, answer="no", step=None, why=f"other windows after step {common[-1]}")
    return found
