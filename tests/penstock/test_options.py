from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import flag, options


@options
class Walks:
    """For these tests."""

    length: Annotated[int, Field(gt=0)] = 80
    """nodes in a walk"""
    start: Literal["all", "some"] = "all"
    min_degree: int = 0
    output: Path | None = None
    shares: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.min_degree > self.length:
            raise UsageError("--min-degree is longer than a walk")


@options
class Needy:
    """Has an option without a default."""

    parts: int


def test_values_are_converted_once():
    made = Walks(length="5", output="there")  # type: ignore[arg-type]
    assert made.length == 5
    assert made.output == Path("there")
    assert Walks() == Walks(length=80)


def test_options_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Walks().length = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"length": 0}, ["--length", "greater than 0", "got 0"]),
        ({"length": "x"}, ["--length", "integer", "got 'x'"]),
        ({"start": "non"}, ["--start", "'all' or 'some'", "got 'non'"]),
        ({"lenght": 3}, ["no option 'lenght'", "length"]),
        ({"shares": (0.5,)}, ["--shares", "more values"]),
        ({"min_degree": 99}, ["--min-degree is longer"]),
    ],
)
def test_a_bad_value_names_the_option_as_a_shell_spells_it(values, parts):
    with pytest.raises(UsageError) as caught:
        Walks(**values)
    for part in parts:
        assert part in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_a_missing_option_is_named():
    with pytest.raises(UsageError, match="Needy needs option --parts"):
        Needy()  # type: ignore[call-arg]


def test_flag():
    assert flag("min_degree") == "--min-degree"
