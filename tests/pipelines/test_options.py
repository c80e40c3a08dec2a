"""Options of all commands: whatever is given, what is wrong is said in words of ours."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import fields
from typing import Any

import pytest

from penstock import ClusterSpec
from penstock.errors import PenstockError, UsageError
from penstock.options import flag
from penstock.pipelines.cli import run
from penstock.pipelines.doctor.options import DoctorOptions
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.flow.document.commands import command_of, job_names
from penstock.pipelines.flow.options import CleanOptions, RunOptions, ServeOptions
from penstock.pipelines.order import OrderOptions
from penstock.pipelines.schedule.options import ScheduleOptions

CLASSES = {made for name in job_names() for made in command_of(name).classes.values()}
CLASSES |= {ClusterSpec, CleanOptions, DoctorOptions, OrderOptions, RunOptions, ScheduleOptions}
CLASSES |= {ServeOptions}
NEEDED: dict[str, Any] = {"k": 2, "partitions": 2}
ODD = (
    "", "x", "-1", "1e400", True, 1.5, -1, 0, 10**30, math.nan, math.inf, [], [[]], [True], ["x"],
    {}, {"a": 1}, dt.date(2026, 11, 20), b"x", object,
)  # fmt: skip
# Texts of pydantic, names of classes and of Python's types.
THEIRS = re.compile(
    r"Input should|instance|unable|a valid|validation|Tuple|List|should|pydantic|Options|Spec\b"
    r"|\b(str|int|float|bool|dict|NoneType)\b"
)


@pytest.mark.parametrize("made", sorted(CLASSES, key=repr), ids=lambda made: made.__name__)
def test_what_is_wrong_is_said_in_our_words(made: Any) -> None:
    names = [one.name for one in fields(made)]
    needed = {name: value for name, value in NEEDED.items() if name in names}
    for name in names:
        for odd in ODD:
            try:
                made(**{**needed, name: odd})
            except PenstockError as error:
                said = str(error).replace(repr(odd), "")
                assert not THEIRS.search(said), (name, odd, said)
    with pytest.raises(UsageError, match=r"^there is no option 'moon'\."):
        made(**needed, moon=1)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (ClusterSpec, "worker_scratch"),
        (ClusterSpec, "tls"),
        (EtlOptions, "valid"),
        (EtlOptions, "scratch"),
    ],
)
@pytest.mark.parametrize("given", [True, 5, ["x"], {}])
def test_what_is_no_path_is_said_with_its_option(made: Any, name: str, given: Any) -> None:
    with pytest.raises(UsageError, match=rf"^option {flag(name)} .* Expected text, or a Path"):
        made(**{name: given})


def test_a_kind_of_cluster_is_named_by_one_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "start", "--help"]) == 0
    said = capsys.readouterr().out
    assert "--cluster STR" in said
    assert "--kind" not in said
    assert run(["cluster", "start", "--kind", "moon"]) == 2  # as it was called, accepted still
    assert "cannot start a cluster of kind 'moon'" in capsys.readouterr().err
