"""What ``expect:`` means, case by case."""

import math

import pytest

from penstock.errors import UsageError
from penstock.pipelines.flow.gates import find_metric, flat_metrics, parse_gate

NAN, INF = math.nan, math.inf
COMPARED = "within 5 % of previous", "not worse than previous by 0.02"
COMPARED += ("not more than previous by 1",)
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
    # A value that is not finite breaks every gate. As a previous one it counts as none: compared
    # with NaN no run would pass ever after, compared with infinity every one would.
    *((text, value, 1, False) for text in (">= 0", *COMPARED) for value in (NAN, INF)),
    *((text, 1, before, True) for text in COMPARED for before in (None, NAN, INF, -INF)),
    *((text, NAN, before, False) for text in COMPARED for before in (None, NAN, INF, -INF)),
]


@pytest.mark.parametrize(("text", "value", "before", "met"), CASES)
def test_a_gate_is_met_or_not(text, value, before, met):
    previous = {} if before is None else {"m": float(before)}
    checked = parse_gate("m", text).check({"m": float(value)}, previous)
    assert checked.met is met
    if "previous" in str(text) and not math.isfinite(previous.get("m", NAN)):
        assert checked.note


def test_a_metric_that_is_not_there_breaks_a_gate_and_says_what_is_there():
    checked = parse_gate("acuracy", ">= 0").check({"accuracy": 1.0}, {})
    assert not checked.met
    assert "accuracy" in checked.note


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
