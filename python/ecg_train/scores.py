"""How well a classifier does: confusion matrix, sensitivity, positive predictivity, F1, AUROC; NumPy only.

Terms as in ANSI/AAMI EC57: sensitivity = TP / (TP + FN), positive predictivity = TP / (TP + FP). What has no
denominator is None, never a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RESAMPLES = 400
LEVEL = 0.95


def confusion(truth: np.ndarray, answer: np.ndarray, classes: int) -> np.ndarray:
    """Return counts (classes, classes): rows are the true class, columns the answer."""
    return np.bincount(truth * classes + answer, minlength=classes * classes).reshape(classes, classes)


def rates(tp: int, fp: int, fn: int) -> dict[str, float | None]:
    """Return sensitivity, positive predictivity and F1 of one class."""
    return {
        "sensitivity": tp / (tp + fn) if tp + fn else None,
        "positive_predictivity": tp / (tp + fp) if tp + fp else None,
        "f1": 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else None,
    }


def macro_f1(per_class: list[dict[str, Any]]) -> float | None:
    """Return the mean F1 over the classes that occur in the truth; None where none does."""
    values = [entry["f1"] for entry in per_class if entry["sensitivity"] is not None]
    return sum(values) / len(values) if values else None


def auroc(positive: np.ndarray, score: np.ndarray, weight: np.ndarray | None = None) -> float | None:
    """Return the area under the ROC curve, ties counted half; None unless both kinds occur.

    The chance that a positive scores above a negative (Hanley & McNeil 1982), here with whole weights per example
    (how often a resample holds it).
    """
    order = np.argsort(score, kind="stable")
    weight = np.ones(len(score)) if weight is None else weight.astype(np.float64)
    return _auroc_sorted(positive[order], score[order], weight[order])


def _auroc_sorted(positive: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float | None:
    plus = weight * positive
    minus = weight - plus
    total = plus.sum() * minus.sum()
    if total == 0:
        return None
    first = np.concatenate([[True], score[1:] != score[:-1]])
    ends = np.flatnonzero(np.concatenate([first[1:], [True]]))
    plus_ties = np.diff(np.cumsum(plus)[ends], prepend=0.0)
    minus_ties = np.diff(np.cumsum(minus)[ends], prepend=0.0)
    below = np.cumsum(minus_ties) - minus_ties
    return float((plus_ties * (below + 0.5 * minus_ties)).sum() / total)


def auroc_interval(
    positive: np.ndarray, score: np.ndarray, groups: np.ndarray, seed: int = 1, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of the AUROC from a bootstrap over groups, or None.

    Beats of one recording are alike, so whole recordings are drawn (cluster bootstrap, Field & Welsh 2007): drawing
    beats would give an interval far too narrow.
    """
    members, index = np.unique(groups, return_inverse=True)
    if len(members) < 2:
        return None
    order = np.argsort(score, kind="stable")
    positive, score, index = positive[order], score[order], index[order]
    random = np.random.Generator(np.random.Philox(seed))
    values = []
    for _ in range(resamples):
        drawn = np.bincount(random.integers(len(members), size=len(members)), minlength=len(members))
        value = _auroc_sorted(positive, score, drawn[index].astype(np.float64))
        if value is not None:
            values.append(value)
    if len(values) < resamples // 2:
        return None
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def by_group(groups: np.ndarray, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (groups, mean scores, targets) with one row per group: the answer of a recording is the mean over it."""
    members, first, index, count = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    summed = np.zeros((len(members), scores.shape[1]))
    np.add.at(summed, index, scores)
    return members, summed / count[:, None], targets[first]


def evaluate(
    scores: np.ndarray, targets: np.ndarray, groups: np.ndarray, classes: tuple[str, ...], multilabel: bool
) -> dict[str, Any]:
    """Return all figures of a test set.

    ``scores`` (n, classes) are probabilities; ``targets`` (n,) class numbers, or (n, classes) 0 and 1 where several
    classes may hold (an answer is then yes above 0.5); ``groups`` (n,) the recording of each example.
    """
    number = len(classes)
    truth = targets.astype(bool) if multilabel else targets[:, None] == np.arange(number)
    if multilabel:
        answer = scores > 0.5
        matrix = None
    else:
        chosen = scores.argmax(axis=1)
        answer = chosen[:, None] == np.arange(number)
        matrix = confusion(targets, chosen, number).tolist()
    per_class = []
    for c, name in enumerate(classes):
        tp, fp, fn = (
            int(np.sum(x))
            for x in (truth[:, c] & answer[:, c], ~truth[:, c] & answer[:, c], truth[:, c] & ~answer[:, c])
        )
        entry = {"class": name, "count": tp + fn, "tp": tp, "fp": fp, "fn": fn} | rates(tp, fp, fn)
        entry["auroc"] = auroc(truth[:, c], scores[:, c])
        entry["auroc_interval"] = None if entry["auroc"] is None else auroc_interval(truth[:, c], scores[:, c], groups)
        per_class.append(entry)
    areas = [entry["auroc"] for entry in per_class if entry["auroc"] is not None]
    return {
        "examples": len(scores),
        "recordings": len(np.unique(groups)),
        "per_class": per_class,
        "confusion": matrix,
        "accuracy": float((truth == answer).all(axis=1).mean()),
        "macro_f1": macro_f1(per_class),
        "macro_auroc": sum(areas) / len(areas) if areas else None,
    }


def majority(targets: np.ndarray, counts: tuple[int, ...], examples: int, multilabel: bool) -> dict[str, Any]:
    """Return accuracy and macro F1 of the answer that needs no model: what holds for most training examples."""
    number = len(counts)
    if multilabel:
        truth = targets.astype(bool)
        answer = np.broadcast_to(np.array(counts) * 2 > examples, truth.shape)
    else:
        truth = targets[:, None] == np.arange(number)
        answer = np.broadcast_to(np.arange(number) == int(np.argmax(counts)), truth.shape)
    per_class = [
        rates(
            *(
                int(np.sum(x))
                for x in (truth[:, c] & answer[:, c], ~truth[:, c] & answer[:, c], truth[:, c] & ~answer[:, c])
            )
        )
        for c in range(number)
    ]
    return {"accuracy": float((truth == answer).all(axis=1).mean()), "macro_f1": macro_f1(per_class)}
