"""Nodes used independently: what the members of a group did together, and what each lost against running alone.

A group is the runs whose launch lines name the same group: each on a node of its own, at the same time. A member's
run alone is one of the same identity without a group, of the same job if there is one, else of any; with several, the
median counts. Loss = 1 - tokens/s together / tokens/s alone. The group's throughput is the sum over its members, and
missing when one of them is.
"""

from __future__ import annotations

import statistics
from typing import Any

from analysis.compare import FREE, same
from analysis.runs import OK, Run

OWN = FREE - {"world", "nodes", "tokens_per_step"}  # what may differ between a member and its run alone


def group_of(run: Run) -> str | None:
    """Return the name of the group that the run's launch line gives; None for an ordinary run."""
    name = run.launch.get("group")
    return name if isinstance(name, str) and name else None


def throughput(run: Run) -> float | None:
    """Return tokens per second; None unless the run ended well and was measured."""
    time, tokens = run.timing.get("step_time_s"), run.identity.get("tokens_per_step")
    return tokens / time if run.status == OK and time and tokens else None


def alone(run: Run, others: list[Run]) -> tuple[float | None, int]:
    """Return the tokens per second of the member's runs alone, and how many there are."""
    twins = [other for other in others if group_of(other) is None and _same_work(run, other)]
    here = [other for other in twins if same(other.launch.get("job_id"), run.launch.get("job_id"))]
    values = [value for other in here or twins if (value := throughput(other)) is not None]
    return (statistics.median(values) if values else None), len(values)


def _same_work(a: Run, b: Run) -> bool:
    names = (a.identity.keys() | b.identity.keys()) - OWN
    return b.identified and all(same(a.identity.get(name), b.identity.get(name)) for name in names)


def rows(runs: list[Run]) -> list[dict[str, Any]]:
    """Return one row per member, and after the members of each group one for the whole."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if (name := group_of(run)) is not None:
            found.setdefault(name, []).append(run)
    out = []
    for name, members in found.items():
        wanted = members[0].launch.get("members")
        together = [throughput(run) for run in members]
        apart = []
        for run, value in zip(members, together, strict=True):
            reference, count = alone(run, runs)
            apart.append(reference)
            out.append(
                {
                    "group": name,
                    "member": run.run,
                    "framework": run.identity.get("framework"),
                    "dataset": run.identity.get("dataset"),
                    "hosts": " ".join(run.identity.get("hosts") or []),
                    "workers": run.world,
                    "tokens_per_s": value,
                    "alone_tokens_per_s": reference,
                    "alone_runs": count,
                    "lost": _lost(value, reference),
                }
            )
        whole = len(members) == wanted
        total = sum(v for v in together if v is not None) if whole and None not in together else None
        ideal = sum(v for v in apart if v is not None) if whole and None not in apart else None
        out.append(
            {
                "group": name,
                "member": f"all {wanted}",
                "workers": sum(run.world or 0 for run in members) or None,
                "tokens_per_s": total,
                "alone_tokens_per_s": ideal,
                "lost": _lost(total, ideal),
            }
        )
    return out


def _lost(together: float | None, reference: float | None) -> float | None:
    return 1 - together / reference if together is not None and reference else None
