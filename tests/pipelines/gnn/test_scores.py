"""Scores against definitions that are spelled out, and scikit-learn where it is installed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipelines.gnn.scores import multi_scores, roc_auc


def naive_auc(positive, score):
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, is_a in zip(score, positive, strict=True)
        for b, is_b in zip(score, positive, strict=True)
        if is_a and not is_b
    ]
    return float(np.mean(pairs)) if pairs else None


def naive_f1(truth, given):
    right = sum(bool(t) and bool(g) for t, g in zip(truth, given, strict=True))
    if not right:
        return 0.0
    precision, recall = right / sum(map(bool, given)), right / sum(map(bool, truth))
    return 2 * precision * recall / (precision + recall)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=30))
def test_the_area_is_the_chance_to_rank_a_pair_rightly(pairs):
    positive = np.array([one for one, _ in pairs], bool)
    score = np.array([s for _, s in pairs], np.float64)
    expected = naive_auc(positive, score)
    found = roc_auc(positive, score)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_several_classes_a_node():
    rng = np.random.default_rng(1)
    chance = rng.integers(0, 11, (50, 4)) / 10
    truth = (chance + rng.normal(0, 0.4, chance.shape)) > 0.5
    truth[:, 3] = False  # a class that no node has
    predicted = chance > 0.5
    predicted[:, 3] = False
    found = multi_scores(truth, predicted, chance)
    assert found["accuracy"] == pytest.approx(
        np.mean([(a == b).all() for a, b in zip(truth, predicted, strict=True)])
    )
    assert found["micro_f1"] == pytest.approx(naive_f1(truth.ravel(), predicted.ravel()))
    f1 = [naive_f1(truth[:, c], predicted[:, c]) for c in range(3)]
    assert found["macro_f1"] == pytest.approx(np.mean(f1))
    areas = [naive_auc(truth[:, c], chance[:, c]) for c in range(3)]
    assert found["roc_auc"] == pytest.approx(np.mean(areas))
    assert [sum(row) for row in found["confusion"]] == [50] * 4
    assert found["confusion"][3] == [0, 0, 0, 50]
