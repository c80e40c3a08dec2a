"""What a stage is expected to give: ``expect:`` in a flow, metric by metric.

    accuracy: ">= 0.9"
    nodes: within 5 % of previous
    mrr: not worse than previous by 0.02
    seconds: not more than previous by 20 %
    classes: between 2 and 10
    hits10: [">= 0.4", not worse than previous by 0.02]

``previous`` is the value of the last run of the flow that passed all its gates; if there is
none yet, or it was NaN or infinite, such an expectation is met by any number.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.documents import named_number, with_named_numbers
from penstock.errors import UsageError

_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_AMOUNT = r"(\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)\s*(%?)"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_FORMS = (
    '">= 0.9" (or <=, >, <, ==, !=), "between 1 and 2", "within 5 % of previous", '
    '"not worse than previous by 0.02", "not more than previous by 20 %"'
)


@dataclass(frozen=True)
class Gate:
    """One expectation: of a metric, in words.

    kind    compare, between, within, worse (smaller is worse) or more (larger is worse)
    bounds  the numbers in it; share: whether the last one is a share of the previous value
    """

    metric: str
    text: str
    kind: str
    bounds: tuple[float, ...]
    sign: str = ""
    share: bool = False

    @property
    def needs_previous(self) -> bool:
        """Whether it compares with an earlier run."""
        return self.kind in ("within", "worse", "more")

    def check(self, metrics: Mapping[str, float], previous: Mapping[str, float]) -> Checked:
        """Return whether the metrics of a stage meet it."""
        value = find_metric(metrics, self.metric)
        if value is None:
            note = _not_found(metrics, self.metric)
            return Checked(self.metric, self.text, None, None, False, note)
        before = find_metric(previous, self.metric) if self.needs_previous else None
        finite = math.isfinite(value)
        if self.needs_previous and (before is None or not math.isfinite(before)):
            # Nothing is near NaN, and everything is near infinity: neither is a usable reference.
            lacks = "there is no previous value"
            note = lacks if before is None else f"the previous value is {shown_metric(before)}"
            return Checked(self.metric, self.text, value, before, finite, note)
        return Checked(
            self.metric, self.text, value, before, finite and self._met(value, before), ""
        )

    def _met(self, value: float, before: float | None) -> bool:
        if self.kind == "compare":
            return _COMPARE[self.sign](value, self.bounds[0])
        if self.kind == "between":
            return self.bounds[0] <= value <= self.bounds[1]
        assert before is not None
        room = abs(before) * self.bounds[0] / 100 if self.share else self.bounds[0]
        change = value - before
        # What is written down in decimals shall not fail by the last bit.
        room += 1e-12 * max(abs(value), abs(before))
        return {"within": abs(change) <= room, "worse": change >= -room, "more": change <= room}[
            self.kind
        ]


@dataclass(frozen=True)
class Checked:
    """The result of a gate."""

    metric: str
    expected: str
    value: float | None
    previous: float | None
    met: bool
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as a run's record holds it."""
        return asdict(self)

    def text(self) -> str:
        """Return one line."""
        value = "none" if self.value is None else shown_metric(self.value)
        before = "" if self.previous is None else f" (previous {shown_metric(self.previous)})"
        return f"{self.metric} {value}{before}, expected {self.expected}" + (
            f"; {self.note}" if self.note else ""
        )


def parse_gate(metric: str, given: Any) -> Gate:
    """Return the gate that a value of ``expect:`` means; a plain number is to be equal."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise _bad(metric, given)
    if isinstance(given, int | float):
        return Gate(metric, f"== {given}", "compare", (float(given),), "==")
    gate = _of_words(metric, given)
    if gate is None:
        raise _bad(metric, given)
    return gate


def _of_words(metric: str, given: str) -> Gate | None:
    text = " ".join(given.split())
    if found := re.fullmatch(rf"(>=|<=|==|!=|>|<)\s*{_NUMBER}", text):
        return Gate(metric, text, "compare", (float(found[2]),), found[1])
    if found := re.fullmatch(rf"between {_NUMBER} and {_NUMBER}", text):
        low, high = float(found[1]), float(found[2])
        if low > high:
            return None
        return Gate(metric, text, "between", (low, high))
    if found := re.fullmatch(rf"within {_AMOUNT} of previous", text):
        return Gate(metric, text, "within", (float(found[1]),), share=bool(found[2]))
    for words, kind in (("worse", "worse"), ("less", "worse"), ("more", "more")):
        if found := re.fullmatch(rf"not {words} than previous(?: by {_AMOUNT})?", text):
            by, share = float(found[1] or 0), bool(found[2])
            return Gate(metric, text, kind, (by,), share=share)
    return None


def _bad(metric: str, given: Any) -> UsageError:
    return UsageError(
        f"cannot read what {metric!r} is expected to be", expected=_FORMS, got=repr(given)
    )


def flat_metrics(report: Any, prefix: str = "") -> dict[str, float]:
    """Return every number of a job's report by its path, keys joined by dots."""
    found: dict[str, float] = {}
    if isinstance(report, dict):
        items: Any = report.items()
    elif isinstance(report, list) and len(report) <= 100:
        items = enumerate(report)
    else:
        items = ()
    for key, value in items:
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            found[name] = float(value)
        elif (named := named_number(value)) is not None:
            found[name] = named
        else:
            found |= flat_metrics(value, name)
    return found


def find_metric(metrics: Mapping[str, float], name: str) -> float | None:
    """Return the metric with this path, or the only one that ends in it."""
    if name in metrics:
        return metrics[name]
    ending = [path for path in metrics if path.endswith(f".{name}")]
    return metrics[ending[0]] if len(ending) == 1 else None


def _not_found(metrics: Mapping[str, float], name: str) -> str:
    """Return why a metric is not to be had: none ends so, or several do."""
    ending = sorted(path for path in metrics if path.endswith(f".{name}"))
    if ending:
        return f"several metrics end in {name!r}: {', '.join(ending[:20])}; name one in full"
    return f"the stage has no metric {name!r}; it has {', '.join(sorted(metrics)) or 'none'}"


def shown_metric(value: float) -> str:
    """Return a metric as people read it: counts whole."""
    if not math.isfinite(value):
        return str(with_named_numbers(value))
    return f"{value:.0f}" if value.is_integer() and abs(value) < 2**53 else f"{value:.6g}"
