"""Options are said once: a frozen dataclass is the keyword arguments, the YAML keys and the flags.

    @options
    class WalkOptions:
        length: Annotated[int, Field(gt=0)] = 80
        '''nodes in a walk'''

The string under a field is its help on the command line. Values are checked and converted once,
when the object is made; what is wrong raises UsageError with the option's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

from cyclopts import Parameter
from pydantic import BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from penstock.errors import UsageError
from penstock.paths import client_input, client_path

T = TypeVar("T")

# The types of options and arguments that are paths: see penstock.paths.
ClientPath = Annotated[
    Path,
    BeforeValidator(client_path),
    Parameter(converter=lambda kind, tokens: client_path(tokens[0].value)),
]
ClientInput = Annotated[
    str,
    BeforeValidator(client_input),
    Parameter(converter=lambda kind, tokens: client_input(tokens[0].value)),
]


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, validated set of options whose fields are command-line flags."""
    made: Any = pydantic_dataclass(
        frozen=True, kw_only=True, config=ConfigDict(extra="forbid", validate_default=True)
    )(cls)
    checked_init = made.__init__

    def __init__(self: T, **values: Any) -> None:  # noqa: N807
        try:
            checked_init(self, **values)
        except ValidationError as error:
            raise bad_option(cls.__name__, error, list(made.__dataclass_fields__)) from None

    __init__.__signature__ = getattr(checked_init, "__signature__", None)  # type: ignore[attr-defined]
    made.__init__ = __init__
    flagged: type[T] = Parameter(name="*")(made)
    return flagged


def flag(name: str) -> str:
    """Return the command-line spelling of an option: ``min_degree`` -> ``--min-degree``."""
    return "--" + name.replace("_", "-")


def bad_option(owner: str, error: ValidationError, known: Iterable[str] = ()) -> UsageError:
    """Return what pydantic found wrong first, naming the option as it is spelled in a shell."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else owner
    if first["type"] == "unexpected_keyword_argument":
        return UsageError(f"{owner} has no option {name!r}", expected=f"one of {', '.join(known)}")
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return UsageError(f"{owner} needs option {flag(name)}")
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = expected.partition(", unable to parse")[0]
    if expected.startswith(("greater", "less")):
        expected = f"a value {expected}"
    if first["type"] == "missing":
        expected = "more values"
    return UsageError(
        f"option {flag(name)} has a bad value", expected=expected, got=repr(first["input"])
    )
