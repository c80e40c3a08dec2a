"""What the command line could not make sense of, said the way every other error is said."""

from __future__ import annotations

from difflib import get_close_matches
from typing import get_args, get_origin

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from pydantic import ValidationError

from penstock.errors import UsageError
from penstock.options import bad_option, shown


def usage_error(error: CycloptsError) -> UsageError:
    """Return what cyclopts complains about as an error of ours."""
    command = " ".join(["penstock", *(error.command_chain or ())])
    see = f"See {command} --help"
    if isinstance(error.__cause__, ValidationError):
        return bad_option(error.__cause__, owner=command)
    if isinstance(error, UnknownCommandError):
        return _unknown_command(error, command)
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error, command, see)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        extra = " ".join(error.unused_tokens)
        remedy = _repeat(error) or see
        return UsageError(f"{command} does not know what to do with {extra!r}", remedy=remedy)
    if isinstance(error, RepeatArgumentError):
        return UsageError(f"option {error.token.keyword} is given twice", remedy="Give it once")
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error, command, see)
    if isinstance(error, CoercionError) and error.token is not None and error.msg is None:
        return _bad_value(error, see)
    error.verbose = False
    return UsageError(str(error).strip(), remedy=see)


def _unknown_command(error: UnknownCommandError, command: str) -> UsageError:
    asked = (error.unused_tokens or [""])[0]
    # The names only: cyclopts' own message would import every command's module.
    known = [name for name in error.app or () if not name.startswith("-")]
    return UsageError(
        f"{command} has no command {asked!r}",
        expected=f"one of {', '.join(known)}",
        remedy=_did_you_mean(asked, known) or f"See {command} --help",
    )


def _unknown_option(error: UnknownOptionError, command: str, see: str) -> UsageError:
    asked = (error.token.keyword or error.token.value).partition("=")[0]
    known = [name for argument in error.argument_collection for name in argument.names]
    remedy = _did_you_mean(asked, known) or see
    return UsageError(f"{command} has no option {asked}", remedy=remedy)


def _repeat(error: UnusedCliTokensError) -> str | None:
    """Return how to give several values, where what is left over follows an option that may."""
    given, extra = list(error.root_input_tokens or ()), (error.unused_tokens or [""])[0]
    before = given[: given.index(extra)] if extra in given else []
    flags = [at for at, word in enumerate(before) if word.startswith("--")]
    if not flags or error.app is None or flags[-1] == len(before) - 1:
        return None
    for argument in error.app.assemble_argument_collection():
        name, first = before[flags[-1] : flags[-1] + 2]
        if name in argument.names and argument.token_count() == (1, True):
            return f"Repeat the option: {name} {first} {name} {extra}"
    return None


def _missing(error: MissingArgumentError, command: str, see: str) -> UsageError:
    name = error.keyword or (error.argument.name if error.argument else "")
    if name.startswith("-"):
        given = error.keyword or (error.argument is not None and error.argument.tokens)
        count = max(error.argument.token_count()[0], 1) if error.argument else 1
        values = "a value" if count == 1 else f"{count} values"
        what = f"option {name} needs {values}" if given else f"{command} needs option {name}"
    else:
        what = f"{command} needs {name.upper()}"
    help_text = error.argument.parameter.help if error.argument else None
    return UsageError(what, expected=help_text or None, remedy=see)


def _bad_value(error: CoercionError, see: str) -> UsageError:
    assert error.token is not None
    asked = error.token.value
    name = error.token.keyword or (error.argument.name.upper() if error.argument else "argument")
    expected, remedy = _type_name(error.target_type), see
    if get_origin(error.target_type) is not None:
        remedy = _did_you_mean(asked, [str(x) for x in get_args(error.target_type)]) or see
    what = f"option {name}" if name.startswith("-") else name
    return UsageError(f"{what} has a bad value", expected=expected, got=shown(asked), remedy=remedy)


def _type_name(kind: object) -> str:
    names = {int: "a whole number", float: "a number", bool: "yes or no"}
    if isinstance(kind, type) and kind in names:
        return names[kind]
    if get_origin(kind) is not None:
        return f"one of {', '.join(str(choice) for choice in get_args(kind))}"
    return getattr(kind, "__name__", str(kind))


def _did_you_mean(asked: str, known: list[str]) -> str | None:
    close = get_close_matches(asked, known, n=1)
    return f"Did you mean {close[0]}?" if close else None
