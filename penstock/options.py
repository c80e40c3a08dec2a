"""Options are declared once: a frozen dataclass is keyword arguments, YAML keys and flags.

    @options
    class WalkOptions:
        length: Annotated[int, Field(gt=0)] = 80
        '''nodes in a walk'''

The string under a field is its help on the command line. Values are checked and converted once,
when the object is made; errors are UsageError with the option's name.

Conditions under which options would be ignored are declared beside them, as ``Rules``;
``refuse_ignored`` raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

from cyclopts import Group, Parameter
from pydantic import (
    BeforeValidator,
    ConfigDict,
    ValidationError,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from penstock.errors import UsageError
from penstock.paths import A_PATH, client_input, client_path, worker_path
from penstock.secrets import masked

T = TypeVar("T")
# Options, and when they have no effect: in words, and as a function of all options that returns
# whether that is the case.
Rules = tuple[tuple[tuple[str, ...], str, Callable[..., bool]], ...]

_CONFIG = ConfigDict(
    extra="forbid", validate_default=True, allow_inf_nan=False, hide_input_in_errors=True
)
_SHOWN = 100  # characters of a bad value
_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))


def _of_path(convert: Callable[[Any], Any]) -> BeforeValidator:
    def converted(value: Any) -> Any:
        if not isinstance(value, str | os.PathLike):
            raise ValueError(A_PATH)
        return convert(value)

    return BeforeValidator(converted)


# The types of path options and arguments: see penstock.paths.
ClientPath = Annotated[
    Path,
    _of_path(client_path),
    Parameter(converter=lambda kind, tokens: client_path(tokens[0].value)),
]
ClientInput = Annotated[
    str,
    _of_path(client_input),
    Parameter(converter=lambda kind, tokens: client_input(tokens[0].value)),
]
WorkerPath = Annotated[Path, _of_path(worker_path)]


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen, validated set of options whose fields are command-line flags."""
    made: Any = pydantic_dataclass(frozen=True, kw_only=True, config=_CONFIG)(cls)
    checked_init = made.__init__

    def __init__(self: T, **values: Any) -> None:  # noqa: N807
        try:
            checked_init(self, **values)
        except ValidationError as error:
            raise bad_option(error) from None

    __init__.__signature__ = getattr(checked_init, "__signature__", None)  # type: ignore[attr-defined]
    made.__init__ = __init__
    flagged: type[T] = Parameter(name="*")(made)
    return flagged


def headings(**first: str) -> Callable[[type[T]], type[T]]:
    """Put fields, inherited ones too, under headings in ``--help``; apply it before ``options``.

    first  a field, and the heading of it and of those after it, up to the next one; inherited
           fields come first. Headings are shown in the given order
    """
    titles = dict.fromkeys(first.values())
    groups = {title: Group(title, sort_key=2 + at / 100) for at, title in enumerate(titles)}

    def under_headings(cls: type[T]) -> type[T]:
        kinds = get_type_hints(cls, include_extras=True)
        assert set(first) <= set(kinds), set(first) - set(kinds)
        heading = None
        for name in kinds:
            heading = first.get(name, heading)
            if heading is not None:
                shown = Parameter(group=groups[heading])
                cls.__annotations__[name] = Annotated[kinds[name], shown]
        return cls

    return under_headings


def _is_default(options: Any, name: str) -> bool:
    return bool(getattr(options, name) == getattr(type(options), name, ...))


def flag(name: str) -> str:
    """Return the command-line spelling of an option: ``min_degree`` -> ``--min-degree``."""
    return "--" + name.replace("_", "-")


def refuse_ignored(options: Any, rules: Rules, *more: Any) -> None:
    """Raise UsageError if an option differs from its default and has no effect.

    more  further arguments of the rules
    """
    for names, when, ignored in rules:
        for name in names:
            if not _is_default(options, name) and ignored(options, *more):
                given = flag(f"no_{name}" if getattr(options, name) is False else name)
                raise UsageError(
                    f"option {given} has no effect {when}", remedy=f"Leave {given} out"
                )


def given_options(options: Any, *, passing: Collection[str] = ()) -> dict[str, Any]:
    """Return the options that differ from their defaults, in the format of a manifest.

    passing  names of options that do not affect the result: resume, overwrite
    """
    found = {}
    for name in options.__dataclass_fields__:
        value = getattr(options, name)
        if name not in passing and not _is_default(options, name):
            found[name] = value if isinstance(value, _PLAIN) else str(value)
    return found


def words_of(given: Mapping[str, Any]) -> list[str]:
    """Return options by name as the words of a command."""
    words = []
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(flag(name if value else f"no_{name}"))
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [flag(name), str(each)]
    return words


def check_fractions(
    name: str, fractions: tuple[float, float, float], *, some_left: bool = False
) -> None:
    """Raise UsageError unless fractions for train, valid and test are valid and add up to one.

    ``some_left``: they may add up to less; the rest is in no split.
    """
    total, rounding = sum(fractions), 1e-6  # for fractions with a few digits
    known = all(part >= 0 for part in fractions)  # false for NaN
    if known and total <= 1 + rounding and (some_left or total >= 1 - rounding):
        return
    raise UsageError(
        f"{flag(name)} needs three fractions that add up to {'at most ' if some_left else ''}one",
        got=" ".join(f"{part:g}" for part in fractions),
    )


def bad_option(error: ValidationError) -> UsageError:
    """Return pydantic's first error, with the option's name as in a shell.

    The value is not shown: it may be a secret.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    what = f"option {flag(str(first['loc'][0]))}" if first["loc"] else "these options"
    if first["type"] == "value_error":  # our validator's message is the expected value
        return UsageError(f"{what} has a bad value", expected=str(first["ctx"]["error"]))
    return UsageError(f"{what}: {first['msg']}")


def no_option(name: str, known: Iterable[str], *, owner: str) -> UsageError:
    """Return the error of an unknown option."""
    return UsageError(f"{owner} has no option {name!r}", expected=f"one of {', '.join(known)}")


@contextmanager
def given_in(source: object) -> Iterator[None]:
    """Add the file, or another source of the options, to their errors."""
    try:
        yield
    except UsageError as error:
        raise UsageError(
            f"{source}: {error.what}",
            expected=error.expected,
            got=error.got,
            remedy=error.remedy,
        ) from error


def with_underscores(given: dict[Any, Any], source: object) -> dict[str, Any]:
    """Return YAML's options by their names in Python: ``-`` may stand for ``_``."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name in found:
            raise UsageError(f"{source}: {name} is given twice", expected="one value, with - or _")
        found[name] = value
    return found


def shown(value: object) -> str:
    """Return a value for an error message: a very long one is cut."""
    text: str = masked(repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
