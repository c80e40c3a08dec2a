from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import options


@options
class Walks:
    """For these tests."""

    length: Annotated[int, Field(gt=0, lt=1_000_000)] = 80
    """nodes in a walk"""
    start: Literal["all", "some"] = "all"
    chance: Annotated[float, Field(ge=1e-30)] = 1.0
    min_degree: int = 0
    output: Path | None = None
    shares: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.min_degree > self.length:
            raise UsageError("--min-degree is longer than a walk")


def test_values_are_converted_once():
    made = Walks(length="5", output="there")  # type: ignore[arg-type]
    assert made.length == 5
    assert made.output == Path("there")
    assert Walks() == Walks(length=80)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"length": 0}, "--length"),
        ({"length": "x"}, "--length"),
        ({"start": "non"}, "--start"),
        ({"lenght": 3}, "lenght"),
        ({"shares": (0.5,)}, "--shares"),
        ({"min_degree": 99}, "--min-degree"),
    ],
)
def test_a_bad_value_names_the_option_as_a_shell_spells_it(values, named):
    with pytest.raises(UsageError) as caught:
        Walks(**values)
    assert named in str(caught.value)


def test_yes_and_no_are_no_numbers():
    with pytest.raises(UsageError):
        Walks(length=True)
    with pytest.raises(UsageError):
        Walks(min_degree=False)
    with pytest.raises(UsageError):
        Walks(shares=[True, 0.5])
