"""The figures of a classifier, on answers worked out by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import task

from ecg_train import scores
from ecg_train.tasks import Task


def test_rates_of_a_known_table() -> None:
    """90 true, 10 false positives, 30 missed: Se 0.75, +P 0.9, F1 = 2 * 90 / 220."""
    assert scores.rates(90, 10, 30) == pytest.approx(
        {"sensitivity": 0.75, "positive_predictivity": 0.9, "f1": 180 / 220}
    )


def test_nothing_to_divide_by_is_none() -> None:
    assert scores.rates(0, 0, 0) == {"sensitivity": None, "positive_predictivity": None, "f1": None}
    assert scores.rates(0, 3, 0)["sensitivity"] is None
    assert scores.auroc(np.array([True, True]), np.array([0.1, 0.2])) is None


def test_confusion_has_truth_in_rows() -> None:
    matrix = scores.confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_auroc_of_known_orders() -> None:
    """All right 1, all wrong 0, all tied 0.5; of 2 x 2 pairs three right and one tied is 3.5 / 4."""
    truth = np.array([False, False, True, True])
    assert scores.auroc(truth, np.array([1, 2, 3, 4])) == 1
    assert scores.auroc(truth, np.array([4, 3, 2, 1])) == 0
    assert scores.auroc(truth, np.zeros(4)) == 0.5
    assert scores.auroc(truth, np.array([1, 2, 2, 3])) == 3.5 / 4


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60))
def test_auroc_is_that_of_scikit_learn(pairs) -> None:
    from sklearn.metrics import roc_auc_score

    truth, score = (np.array(x) for x in zip(*pairs, strict=True))
    if truth.all() or not truth.any():
        assert scores.auroc(truth, score) is None
    else:
        assert scores.auroc(truth, score) == pytest.approx(roc_auc_score(truth, score))


def test_weights_count_an_example_several_times() -> None:
    truth, score = np.array([True, False, True, False]), np.array([0.9, 0.4, 0.3, 0.2])
    twice = scores.auroc(np.append(truth, truth[2]), np.append(score, score[2]))
    assert scores.auroc(truth, score, np.array([1, 1, 2, 1])) == pytest.approx(twice)


def test_interval_is_over_recordings_not_beats() -> None:
    """Copying every beat ten times adds no knowledge: the interval must not shrink, since the recordings are drawn."""
    random = np.random.default_rng(3)
    groups = np.repeat(np.arange(12), 20)
    truth = random.random(240) < 0.3
    score = truth + random.normal(0, 1, 240) + random.normal(0, 0.5, 12)[groups]
    low, high = scores.auroc_interval(truth, score, groups)
    area = scores.auroc(truth, score)
    assert low < area < high
    many = [np.repeat(x, 10) for x in (truth, score, groups)]
    assert scores.auroc_interval(*many) == pytest.approx((low, high), abs=1e-12)
    assert scores.auroc_interval(truth, score, np.zeros(240)) is None


def test_evaluate_on_a_table_worked_out_by_hand() -> None:
    chances = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]])
    found = scores.evaluate(chances, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), ("a", "b", "c"), multilabel=False)
    assert found["confusion"] == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert found["accuracy"] == 0.5
    assert found["macro_f1"] == pytest.approx(0.5), "class c does not occur and does not count"
    assert found["per_class"][0]["auroc"] == 0.75
    assert found["per_class"][2]["auroc"] is None


def test_majority_is_the_most_frequent_training_class() -> None:
    """Always 'low': right in 3 of 4; its F1 is 6 / 7, the others' 0, so the mean over the two that occur is 3 / 7."""
    found = scores.majority(np.array([0, 0, 0, 1]), (120, 80, 40), 240, multilabel=False)
    assert found == pytest.approx({"accuracy": 0.75, "macro_f1": 3 / 7})


def test_by_group_takes_the_mean_of_a_recording() -> None:
    groups, mean, truth = scores.by_group(
        np.array([7, 3, 7]), np.array([[0.2], [0.5], [0.6]]), np.array([[1], [0], [1]])
    )
    assert groups.tolist() == [3, 7]
    assert mean.ravel() == pytest.approx([0.5, 0.4])
    assert truth.ravel().tolist() == [0, 1]


def test_balanced_weights() -> None:
    """240 examples of 120, 80 and 40: 240 / (3 n); where several classes may hold, absent over present."""
    assert task().weights("balanced") == pytest.approx([240 / 360, 1, 2])
    assert task(multilabel=True).weights("balanced") == pytest.approx([1, 2, 5])
    assert task().weights("none") is None


@settings(deadline=None)
@given(st.integers(2, 40), st.data())
def test_a_row_gives_back_its_labels_and_recording(classes, data) -> None:
    """Whatever the number of classes: bits over several columns, recordings beyond 16 bits."""
    labels = sorted(data.draw(st.sets(st.integers(0, classes - 1))))
    group = data.draw(st.integers(0, (1 << 32) - 1))
    named = Task("t", tuple(str(c) for c in range(classes)), True, 4, (0,) * classes, 0, False)
    row = named.row(np.arange(4), group, labels)[None]
    assert named.groups(row).tolist() == [group]
    assert np.flatnonzero(named.targets(row)[0]).tolist() == labels
    assert named.tokens(row).tolist() == [[0, 1, 2, 3]]
