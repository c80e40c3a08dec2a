"""Bounds in time: exact, in whatever way they are given."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.moments import LEAST, MOST, Moment, moment, time_text
from penstock.options import options


@options
class Window:
    since: Moment | None = None


@given(st.integers(LEAST + 1, MOST))
def test_whole_numbers_and_nanoseconds_come_back_exactly(number: int) -> None:
    assert moment(str(number), "int64", "--since") == number
    assert moment(time_text(number, timestamp=True), "timestamp", "--since") == number
    assert moment(f"{number}e-1", "int64", "--since") == -(-number // 10)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1e999999", "int64", MOST + 1),
        ("-1e999999", "int64", LEAST),
        ("1e-999999", "int64", 1),
        ("1600-01-01", "timestamp", LEAST),
        ("9999-12-31", "timestamp", MOST + 1),
        ("20261121", "timestamp", pd.Timestamp("2026-11-21").value),
        ("20261121", None, 20261121),
        ("2026-11-21", None, pd.Timestamp("2026-11-21").value),
        ("19700101T000000,5+0100", "timestamp", 500_000_000 - 3600 * 10**9),
    ],
)
def test_bounds_at_the_edges(text: str, kind: Any, value: int) -> None:
    found = moment(text, kind, "--since")
    assert found == value
    assert isinstance(found, int)
