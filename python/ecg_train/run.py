"""From a command line to an exit code: what all entry scripts share.

Exit codes: 0 done, 1 the run failed, 2 a bad request (nothing was started).
"""

from __future__ import annotations

import os
import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ecg_train import state, strategies
from ecg_train.config import Config, parse_args
from ecg_train.errors import UserError
from ecg_train.facts import identity
from ecg_train.finetune import HeldOut, check_mode, table
from ecg_train.loader import EvalPlan, Loader
from ecg_train.logline import END, START, LogWriter
from ecg_train.loop import Aborted, Loop
from ecg_train.ranks import from_environment
from ecg_train.shards import ShardSet, dataset_folder
from ecg_train.strategies.base import Strategy, World


def main(framework: str, argv: Sequence[str], doc: str) -> int:
    """Run ``framework`` as the command line asks; return the exit code."""
    prog = f"python -m ecg_train.train_{framework}"
    try:
        config, sources = parse_args(argv, prog, doc)
        shards = open_data(config)
        check_mode(config.mode, shards)
        strategy = strategies.make(framework)
        return execute(config, sources, strategy, shards)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def open_data(config: Config) -> ShardSet:
    """Return the training split; UserError when the data set is missing or damaged."""
    return ShardSet.open(
        dataset_folder(Path(config.data_dir), config.dataset), "train", config.seq_len, verify=config.verify_data
    )


def run_id(config: Config, strategy: Strategy, world: World) -> str:
    """Return the name of this run: the one given, or one made of what it is and of rank 0's time and dice."""
    if config.run_id:
        return config.run_id
    first = world.rank == 0
    shared = strategy.mean((time.time() if first else 0.0, float(secrets.randbelow(1 << 24)) if first else 0.0))
    seconds, dice = (round(value * world.size) for value in shared)
    stem = (
        f"{config.mode}_{config.dataset}_{config.model}_{strategy.name}_n{config.nodes}_g{world.size}_{config.scaling}"
    )
    return f"{stem}_r{config.repeat}_{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}-{dice:06x}"


def execute(config: Config, sources: dict[str, str], strategy: Strategy, shards: ShardSet) -> int:
    """Join the world, train, and leave an end line whatever happens; return the exit code."""
    begun = time.perf_counter()
    world = strategy.start(config)
    config.global_batch(world.size)  # refuses what does not divide before anything is written
    log = LogWriter(run_id(config, strategy, world), world.rank, config.run_dir or None)
    status, reason, ok = "aborted", "", False
    try:
        log.event("init_start", event=START, host=os.uname().nodename, pid=os.getpid(), sources=given(sources))
        train(config, strategy, shards, world, log)
        status, ok = "success", True
    except (Aborted, UserError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        reason = "interrupted"
    except Exception as error:  # noqa: BLE001 - whatever it was, the run must end with a line that says so
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if not ok:
        log.event("run_stop", event=END, status=status, reason=reason)
        print(f"error: rank {world.rank}: {reason}", file=sys.stderr, flush=True)
    end = {"status": status, "reason": reason, "wall_time": time.perf_counter() - begun} | strategy.usage()
    log.event("ecg_end", end)
    log.close()
    strategy.stop(ok)
    return 0 if ok else 1


def train(config: Config, strategy: Strategy, shards: ShardSet, world: World, log: LogWriter) -> None:
    """Log what the run is, build everything and run the loop."""
    global_batch = config.global_batch(world.size)
    log.event("seed", config.seed)
    log.event("global_batch_size", global_batch)
    strategy.build(config, shards.vocab_size, shards.task)
    log.event("ecg_run", identity(config, world, strategy.name, strategy.facts(), shards))
    fixed = state.settings(config, world, strategy.name, shards)
    done = resumed(config, strategy, fixed, log)
    plan = None
    if config.eval_batches:
        held_out = ShardSet.open(shards.folder, "val", config.seq_len)
        plan = EvalPlan(held_out, global_batch, config.eval_batches)
    order = shards.order(config.seed)
    with Loader(shards, order, global_batch, world.rank, world.size, config.accumulation, done) as batches:
        log.event("init_stop", event=END)
        evaluation = (lambda: plan.parts(world.rank, world.size)) if plan else None
        loop = Loop(config, strategy, batches, evaluation, log, plan.tokens if plan else 0)
        loop.done = done
        if config.run_dir and (config.checkpoint or config.checkpoint_every):
            if why := strategy.no_state():
                log.event("ecg_state_unavailable", why)
            else:
                loop.keep = partial(keep, Path(config.run_dir) / state.FILE, fixed, strategy, log)
        if shards.task is not None:
            loop.after = partial(test, config, strategy, shards, world, log)
        loop.run()
        if config.run_dir and world.rank == 0:
            (Path(config.run_dir) / state.FILE).unlink(missing_ok=True)  # a run that ended well does not go on


def keep(path: Path, fixed: dict[str, Any], strategy: Strategy, log: LogWriter, step: int) -> None:
    """Keep the state after ``step``, and log how long that took."""
    begun = time.perf_counter()
    strategy.save_state(path, state.facts(step, fixed))
    # Rank 0 writes. Who left before it has finished, after a request to stop, would have it ended by the launcher.
    strategy.mean([0.0])
    log.event("ecg_state", {"step": step, "seconds": time.perf_counter() - begun}, step=step)


def resumed(config: Config, strategy: Strategy, fixed: dict[str, Any], log: LogWriter) -> int:
    """Load the state in the run folder, if that was asked for; return the steps that were made."""
    if not config.resume:
        return 0
    path = Path(config.run_dir) / state.FILE
    done = state.last_step(path, fixed)
    if why := strategy.no_state():
        raise UserError(f"--resume: {why}")
    strategy.load_state(path)
    log.event("ecg_resume", {"step": done})
    return done


def test(config: Config, strategy: Strategy, shards: ShardSet, world: World, log: LogWriter) -> None:
    """Log how well a fine-tuned model does on the test split."""
    held_out = ShardSet.open(shards.folder, "test", config.seq_len)
    figures = HeldOut(held_out, config.global_batch(world.size) // world.size, config.test_examples).figures(
        strategy, world
    )
    log.event("ecg_metrics", figures)
    if world.rank == 0:
        print(table(figures), file=sys.stderr, flush=True)


def given(sources: dict[str, str]) -> dict[str, str]:
    """Return where each setting that is not the default came from."""
    return {name: source for name, source in sources.items() if source != "default"}


def finish(code: int, at_once: bool = False) -> None:
    """End the process with ``code``; after a failure at once, since other threads may wait for dead workers.

    ``at_once``: after a success too, for libraries whose threads do not survive the interpreter's own end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if (code == 1 or (code == 0 and at_once)) and from_environment().size > 1:
        os._exit(code)
    raise SystemExit(code)
