"""What ``expect:`` means, case by case."""

import math

import pytest

from penstock.errors import UsageError
from penstock.pipelines.flow.gates import find_metric, flat_metrics, parse_gate

CASES = [
    (">= 0.9", 0.9, None, True),
    (">= 0.9", 0.8999, None, False),
    ("!= 0", 1, None, True),
    (5, 6, None, False),
    ("between 1 and 2", 2.01, None, False),
    ("within 5 % of previous", 105, 100, True),
    ("within 5 % of previous", 94.9, 100, False),
    ("within 5 of previous", 106, 100, False),
    ("within 5 % of previous", -105, -100, True),
    ("not worse than previous by 0.02", 0.28, 0.30, True),
    ("not worse than previous by 0.02", 0.279, 0.30, False),
    ("not worse than previous", 0.29, 0.30, False),
    ("not less than previous by 10 %", 89, 100, False),
    ("not more than previous by 20 %", 120, 100, True),
    ("not more than previous by 20 %", 121, 100, False),
]


@pytest.mark.parametrize(("text", "value", "before", "met"), CASES)
def test_a_gate_is_met_or_not(text, value, before, met):
    previous = {} if before is None else {"m": float(before)}
    assert parse_gate("m", text).check({"m": float(value)}, previous).met is met


def test_a_metric_that_is_not_there_breaks_a_gate_and_says_what_is_there():
    checked = parse_gate("acuracy", ">= 0").check({"accuracy": 1.0}, {})
    assert not checked.met
    assert "accuracy" in checked.note


def test_without_a_previous_value_a_comparison_with_it_is_met():
    checked = parse_gate("m", "within 5 % of previous").check({"m": 1.0}, {})
    assert checked.met
    assert checked.note


@pytest.mark.parametrize("text", [">= 0", "within 5 % of previous", "not more than previous by 1"])
def test_a_value_that_is_not_finite_breaks_every_gate(text):
    for value in (math.nan, math.inf):
        assert not parse_gate("m", text).check({"m": value}, {"m": 1.0}).met


@pytest.mark.parametrize(
    "text", ["", ">=", "> x", "good", True, None, [1], "between 2 and 1", "within -5 % of previous"]
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError):
        parse_gate("m", text)


def test_metrics_are_found_by_path_or_by_a_unique_end():
    report = {"nodes": 3, "metrics": {"test": {"score": 0.5}}, "ok": True, "name": "x", "a": [1, 2]}
    metrics = flat_metrics(report)
    assert metrics == {"nodes": 3.0, "metrics.test.score": 0.5, "a.0": 1.0, "a.1": 2.0}
    assert find_metric(metrics, "test.score") == 0.5
    assert find_metric({"a.x": 1.0, "b.x": 2.0}, "x") is None


@pytest.mark.parametrize("before", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["within 5 % of previous", "not worse than previous by 0.02"])
def test_a_previous_value_that_is_not_finite_counts_as_none(text, before):
    """Compared with NaN no run would pass ever after; compared with infinity every one would."""
    gate = parse_gate("m", text)
    checked = gate.check({"m": 1.0}, {"m": before})
    assert checked.met
    assert checked.note
    assert not gate.check({"m": math.nan}, {"m": before}).met
    assert not gate.check({"m": math.nan}, {}).met
