"""The state of a run that was cut off: what it needs to go on, and whether it is the same run that asks for it.

One safetensors file in the run's folder, replaced as a whole: weights and the optimizer's moments by the model's own
names, unsharded, and as text the step and the settings. No pickle anywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ecg_train.config import Config
from ecg_train.errors import UserError
from ecg_train.facts import ECHOED
from ecg_train.shards import ShardSet
from ecg_train.strategies.base import World

FILE = "state.safetensors"
FORMAT = "ecg-train-state-1"
# What may differ between the attempts of one run: how it is measured and where.
FREE = frozenset({"timing_warmup", "nodes", "repeat"})


def settings(config: Config, world: World, strategy: str, shards: ShardSet) -> dict[str, Any]:
    """Return what must be the same when the run goes on."""
    fixed = {name: getattr(config, name) for name in ECHOED if name not in FREE}
    return fixed | {
        "framework": strategy,
        "world": world.size,
        "global_batch": config.global_batch(world.size),
        "dataset_digest": shards.digest,
        "class_weights": config.class_weights,
    }


def facts(step: int, fixed: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a state file; ``step`` is the last one made."""
    return {"format": FORMAT, "step": str(step), "settings": json.dumps(fixed, sort_keys=True)}


def last_step(path: Path, fixed: dict[str, Any]) -> int:
    """Return the step after which the run of this state was left.

    Raises UserError where there is no state, it is damaged, or its settings are not ``fixed``.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            found = file.metadata() or {}
        if found.get("format") != FORMAT:
            raise ValueError(f"format {found.get('format')!r}, wanted {FORMAT!r}")
        step, before = int(found["step"]), json.loads(found["settings"])
    except FileNotFoundError:
        raise UserError(
            f"there is no state to go on from ({path}); runs keep one with CHECKPOINT_EVERY=n, and with CHECKPOINT=1"
            " when they are asked to stop"
        ) from None
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path} is no state of a run: {error}; start the run anew") from None
    for name in sorted(before.keys() | fixed.keys()):
        if before.get(name) != fixed.get(name):
            raise UserError(
                f"{path} is the state of another run: its {name} is {before.get(name)!r}, this one's"
                f" {fixed.get(name)!r}; ask for the same run, or start anew"
            )
    return step
