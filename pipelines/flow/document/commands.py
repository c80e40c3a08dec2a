"""What a stage of a flow can run: any Penstock command, as on the command line, or a function.

The command line is the only place where commands are listed. Here a stage's ``job`` is looked up
in it, and the signature of the command shows how many inputs it takes, whether it writes
an output, and which options it has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from cyclopts import App

from penstock.errors import UsageError
from penstock.options import no_option

# Commands that make no result, or whose result is not a stage's.
_NOT_STAGES = {"cluster", "completion", "demo", "doctor", "init", "order", "publish", "report"}
_NOT_STAGES |= {"run", "runs", "schedule", "schema"}
_SHORT = {"gnn": "gnn train", "embed": "embed train", "word2vec": "word2vec train"}
# Verbs that mean another command for each job that they follow.
_FOLLOWING = ("evaluate", "export", "predict")
_OPTIONS = ("options", "how")  # the parameters that are sets of options
# Options that name the output of a command which writes one only on request: a stage always does.
_OUTPUTS: dict[tuple[str, ...], str] = {("similar",): "all"}


@dataclass(frozen=True)
class StageCommand:
    """One command, as a stage runs it.

    words     the words after ``penstock``; empty: a function of the user's
    function  what the command line calls
    inputs    least and most positional inputs; None: any number
    listed    whether the first positional takes several inputs, as a list
    writes    whether it makes an output: the last positional, or what the option ``out`` names
    out       the option that names the output; None: it is the last positional
    classes   parameters that are sets of options, by name
    """

    words: tuple[str, ...]
    function: Callable[..., Any]
    inputs: tuple[int, int | None]
    listed: bool
    writes: bool
    out: str | None
    classes: dict[str, type]
    clustered: bool
    planned: bool

    @property
    def name(self) -> str:
        """What users call it."""
        return " ".join(self.words)

    @property
    def in_place(self) -> bool:
        """Whether its result lies in its input: the parts of a graph."""
        return self.words == ("partition",)

    @property
    def names(self) -> tuple[str, ...]:
        """The options that a stage may give."""
        return tuple(one.name for made in self.classes.values() for one in fields(made))

    def has(self, option: str) -> bool:
        """Return whether the command has an option."""
        return option in self.names

    def arguments(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of ``function`` for a stage's options, which are checked."""
        if self.out in options:
            raise UsageError(
                f"option {self.out} is set by the flow, which chooses the path of a stage's output",
                remedy="Leave it out; publish: names the target for readers",
            )
        unknown = [name for name in options if name not in self.names]
        if unknown:
            raise no_option(unknown[0], sorted(self.names), owner=f"penstock {self.name}")
        made: dict[str, Any] = {}
        for parameter, kind in self.classes.items():
            own = {one.name for one in fields(kind)}
            made[parameter] = kind(**{k: v for k, v in options.items() if k in own})
        return made


def job_name(job: str, before: str | None) -> str:
    """Return the whole name of a job: ``gnn`` is ``gnn train``, ``evaluate`` what its input is of.

    before  the job of the stage that is the first input, if a stage is
    """
    words = job.split()
    if len(words) == 1 and words[0] in _FOLLOWING:
        family = before.split()[0] if before else None
        if family not in _SHORT:
            raise UsageError(
                f"job {job!r} follows a stage that trained something",
                expected="as its first input a stage with job gnn, embed or word2vec",
                remedy=f"Or name the job: 'gnn {words[0]}', 'embed {words[0]}'",
            )
        return f"{family} {words[0]}"
    return _SHORT.get(" ".join(words), " ".join(words))


@cache
def command_of(name: str) -> StageCommand:
    """Return the command with this whole name."""
    from penstock.pipelines.cli import app

    words = tuple(name.split())
    found = _resolved(app, words)
    if found is None or not words or words[0] in _NOT_STAGES:
        raise UsageError(
            f"unknown job {name!r}",
            expected=f"one of {', '.join(job_names())}, or python: module:function",
        )
    return _described(words, found)


@cache
def job_names() -> tuple[str, ...]:
    """Return the names of all jobs that a stage can have."""
    from penstock.pipelines.cli import app

    return tuple(sorted(_names(app, ())))


def _names(app: App, before: tuple[str, ...]) -> Iterable[str]:
    for word in app:
        if word.startswith("-") or (not before and word in _NOT_STAGES):
            continue
        inner = app[word]
        words = (*before, word)
        if inner.default_command is None:
            yield from _names(inner, words)
        else:
            yield " ".join(words)


def _resolved(app: App, words: tuple[str, ...]) -> Callable[..., Any] | None:
    for word in words:
        if word.startswith("-") or word not in list(app):
            return None
        app = app[word]
    return app.default_command


def _described(words: tuple[str, ...], function: Callable[..., Any]) -> StageCommand:
    hints, out = get_type_hints(function), _OUTPUTS.get(words)
    given = inspect.signature(function).parameters
    positional = [one for one in given.values() if one.kind is one.POSITIONAL_ONLY]
    names = [one.name for one in positional]
    writes = bool(names) and (names[-1] == "out" or (words[-1] == "train" and names[-1] == "run"))
    inputs = positional[: len(positional) - writes]
    listed = bool(inputs) and getattr(hints[inputs[0].name], "__origin__", None) in (list, tuple)
    least = sum(one.default is one.empty for one in inputs)
    return StageCommand(
        words,
        function,
        inputs=(least, None if listed else len(inputs)),
        listed=listed,
        writes=writes or out is not None,
        out=out,
        classes={one: hints[one] for one in given if one in _OPTIONS},
        clustered="cluster" in given,
        planned="plan" in given,
    )
