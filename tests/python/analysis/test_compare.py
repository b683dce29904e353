"""What may be divided by what, and the equal-work check."""

from __future__ import annotations

import pytest
from made_runs import identity, loss_at

from analysis import compare
from analysis.runs import OK, Run


def run(name: str, losses=loss_at, status: str = OK, count: int = 30, **changes) -> Run:
    out = Run(name, identity=identity(**changes), identified=True, status=status)
    out.steps.count = count
    out.steps.early = {s: losses(s) for s in range(1, min(count, 20) + 1)}
    return out


def test_sizes_nodes_hosts_repeats_and_frameworks_share_a_table():
    runs = [
        run("a"),
        run("b", world=2, nodes=2, hosts=["x", "y"], job_id=7, repeat=3),
        run("c", framework="horovod", framework_version="0.28", backend="mpi"),
        run("d", framework="deepspeed", zero_stage=2),
    ]
    assert [g.name for g in compare.groups(runs)] == ["strong-1"]
    assert compare.refusals(compare.groups(runs)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "small"),
        ("precision", "bf16"),
        ("seed", 2),
        ("global_batch", 32),
        ("seq_len", 128),
        ("dataset_digest", "sha256:1"),
        ("accumulation", 2),
        ("learning_rate", 1e-3),
        ("steps", 60),
        ("compile", True),
        ("cores_per_worker", 2.0),
        ("oversubscribed", True),
        ("code_digest", "def"),
        ("device_name", "other"),
    ],
)
def test_any_other_difference_is_refused_with_its_field_and_values(field, value):
    groups = compare.groups([run("a"), run("b", world=2, **{field: value})])
    assert len(groups) == 2
    refused = [(r["field"], r["other"], r["value"]) for r in compare.refusals(groups)]
    wanted = (field, compare._canonical(identity()[field]), compare._canonical(value))
    assert wanted in refused
    assert {f for f, _, _ in refused} <= {field, "global_batch", "tokens_per_step"}


def test_a_field_may_differ_on_request():
    runs = [run("a"), run("b", code_digest="def", seed=2)]
    assert len(compare.groups(runs, frozenset({"code_digest"}))) == 2
    assert len(compare.groups(runs, frozenset({"code_digest", "seed"}))) == 1


def test_strong_scaling_with_a_growing_batch_is_not_strong():
    """A comparable tool labels it so."""
    groups = compare.groups([run("a"), run("b", world=2, global_batch=32)])
    assert [r["field"] for r in compare.refusals(groups)] == ["global_batch"]


def test_weak_scaling_lets_the_global_batch_grow_only():
    same = [run("a", scaling="weak"), run("b", scaling="weak", world=2)]
    assert len(compare.groups(same)) == 1
    other = compare.groups([*same, run("c", scaling="weak", world=2, worker_batch=8)])
    assert [r["field"] for r in compare.refusals(other)] == ["worker_batch"]


def test_strong_and_weak_are_never_one_table_nor_refused_of_each_other():
    groups = compare.groups([run("w", scaling="weak"), run("s")])
    assert [g.name for g in groups] == ["strong-1", "weak-1"]
    assert compare.refusals(groups) == []


def test_the_nearest_group_is_named():
    groups = compare.groups([run("a"), run("b", model="small", seed=3), run("c", model="small", seed=4)])
    refused = compare.refusals(groups)
    assert [(r["group"], r["against"], r["field"]) for r in refused if r["group"] == "strong-3"] == [
        ("strong-3", "strong-2", "seed")
    ]


def test_numbers_that_are_equal_are_the_same_and_truths_are_no_numbers():
    assert compare._canonical(1) == compare._canonical(1.0)
    assert compare._canonical(1) != compare._canonical(True)


def test_a_run_that_stated_nothing_but_its_launch_joins_the_group_it_was_meant_for():
    who = identity(world=2)
    launch = {
        k: who[k] for k in ("framework", "nodes", "world", "mode", "dataset", "model", "scaling", "seed", "precision")
    }
    lost = Run("lost", identity=launch | {"batch": 16, "seq_len": 64, "steps": 30, "accumulation": 1, "repeat": 1})
    stranger = Run("stranger", identity=launch | {"batch": 999})
    groups = compare.groups([run("a"), lost, stranger])
    compare.adopt(groups, [lost, stranger])
    assert [r.run for r in groups[0].runs] == ["a", "lost"]


def answers(*runs: Run) -> dict[str, str]:
    return {name: str(work) for name, work in compare.equal_work(list(runs)).items()}


def test_equal_work_compares_with_serial():
    off = lambda by, at: lambda s: loss_at(s) + (by if s == at else 0)  # noqa: E731 - three words
    got = answers(
        run("d1"),
        run("s", framework="serial"),
        run("near", off(9e-5, 7), world=2),
        run("far", off(-3e-3, 7), world=2),
        run("two", accumulation=2, world=2),
    )
    assert got == {"s": "reference", "d1": "yes", "near": "yes", "far": "no (3.0e-03 @ 7)", "two": "yes"}


def test_without_serial_the_smallest_world_is_the_reference():
    assert answers(run("b", world=4), run("a", world=2)) == {"a": "reference", "b": "yes"}


def test_the_reference_is_of_the_same_code_where_there_is_one():
    old = lambda s: 9.0  # noqa: E731
    runs = [
        run("old", old, framework="serial", code_digest="0"),
        run("new", framework="serial"),
        run("a"),
        run("b", old),
    ]
    runs[3].identity["code_digest"] = "0"
    assert answers(*runs) == {"old": "reference", "new": "reference", "a": "yes", "b": "yes"}


def test_a_run_that_did_not_end_well_is_no_reference():
    got = answers(run("s", framework="serial", status="failed"), run("a"), run("b", world=2))
    assert got == {"a": "reference", "s": "yes", "b": "yes"}


def test_weak_scaling_has_a_reference_only_at_the_same_global_batch():
    weak = [run(f"w{w}", scaling="weak", worker_batch=8, world=w) for w in (1, 2, 4)]
    assert answers(*weak) == {"w1": "-", "w2": "-", "w4": "-"}
    assert answers(*weak, run("s", framework="serial", global_batch=16))["w2"] == "yes"


@pytest.mark.parametrize("field", ["seed", "model", "dataset_digest", "learning_rate", "steps", "precision", "seq_len"])
def test_other_experiments_are_no_reference(field):
    value = {"seed": 2, "learning_rate": 1.0, "steps": 99, "seq_len": 32}.get(field, "fp16")
    assert answers(run("s", framework="serial"), run("a", **{field: value})) == {"s": "-", "a": "-"}


def test_bf16_has_its_own_tolerance_and_an_unknown_precision_none():
    near = lambda s: loss_at(s) + 1e-2  # noqa: E731
    assert answers(run("s", precision="bf16"), run("a", near, world=2, precision="bf16"))["a"] == "yes"
    assert answers(run("s", precision="fp8"), run("a", near, world=2, precision="fp8"))["a"] == "-"


def test_a_short_run_says_how_much_was_compared():
    got = answers(run("s", framework="serial"), run("a", count=7, status="incomplete", world=2))
    assert got["a"] == "yes (7 steps)"
