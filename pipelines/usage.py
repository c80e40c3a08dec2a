"""What the command line could not make sense of, in cyclopts' and pydantic's own words."""

from __future__ import annotations

from cyclopts import CycloptsError
from cyclopts.exceptions import UnknownCommandError
from pydantic import ValidationError

from penstock.errors import UsageError
from penstock.options import bad_option


def usage_error(error: CycloptsError) -> UsageError:
    """Return an error of cyclopts as a Penstock error."""
    if isinstance(error.__cause__, ValidationError):
        return bad_option(error.__cause__)
    command = " ".join(["penstock", *(error.command_chain or ())])
    see = f"See {command} --help"
    if isinstance(error, UnknownCommandError):
        # cyclopts' own message would import every command's module.
        known = [name for name in error.app or () if not name.startswith("-")]
        asked = (error.unused_tokens or [""])[0]
        return UsageError(
            f"{command} has no command {asked!r}",
            expected=f"one of {', '.join(known)}",
            remedy=see,
        )
    error.verbose = False
    return UsageError(str(error).strip(), remedy=see)
