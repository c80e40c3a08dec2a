"""The jobs that a stage can have, which are those of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cyclopts import App

from penstock.errors import UsageError
from penstock.pipelines.job.declare import Job

SHORT = {"gnn": "gnn train", "embed": "embed train", "word2vec": "word2vec train"}
SHORT |= {"word2vec export": "vectors export"}
# Verbs that mean another job for each one that they follow.
FOLLOWING = ("evaluate", "export", "predict")


def job_name(job: str, before: str | None) -> str:
    """Return the whole name of a job: ``gnn`` is ``gnn train``, ``evaluate`` what its input is of.

    before  the job of the stage that is the first input, if a stage is
    """
    name = " ".join(job.split())
    if name in FOLLOWING:
        family = before.split()[0] if before else None
        if family not in SHORT:
            raise UsageError(
                f"job {job!r} follows a stage that trained something",
                expected="as its first input a stage with job gnn, embed or word2vec",
                remedy=f"Or name the job: 'gnn {name}', 'embed {name}'",
            )
        name = f"{family} {name}"
    return SHORT.get(name, name)


@cache
def job_of(name: str) -> Job[Any]:
    """Return the job with this whole name."""
    from penstock.pipelines.cli import app

    inner = app
    for word in name.split():
        if word.startswith("-") or word not in list(inner):
            break
        inner = inner[word]
    else:
        if (found := _declared(inner)) is not None:
            return found
    raise UsageError(
        f"unknown job {name!r}",
        expected=f"one of {', '.join(job_names())}, or python: module:function",
    )


@cache
def job_names() -> tuple[str, ...]:
    """Return the names of all jobs that a stage can have."""
    from penstock.pipelines.cli import app

    return tuple(sorted(job.name for job in _jobs(app)))


def _jobs(app: App) -> Iterator[Job[Any]]:
    if (found := _declared(app)) is not None:
        yield found
    for word in app:
        if not word.startswith("-"):
            yield from _jobs(app[word])


def _declared(app: App) -> Job[Any] | None:
    """Return the job of a command; None: it has none."""
    return getattr(app.default_command, "job", None)
