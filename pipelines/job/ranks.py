"""One function on all ranks of a gang, started again where a rank was lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from penstock.errors import ClusterError, GangError, PenstockError

# A rank that dies takes its world with it, which is started again. What ranks have written stays.
RETRIES = 2


def run_ranks(
    client: Any,
    function: Callable[..., Any],
    arguments: Callable[[], tuple[Any, ...]],
    *,
    ranks: int,
    title: str = "gang",
    total: Callable[[], int] | None = None,
    unit: str = "steps",
    quiet: bool,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[Any]:
    """Run ``function(comm, *arguments())`` on ``ranks`` workers at once; return each result.

    arguments   asked before every attempt: after a lost rank only what is left to do
    total       of ``unit``, likewise, for the progress bar, which ``comm.advance`` feeds
    on_metrics  called with the rank and what it gave to ``comm.log``
    What is wrong with the input is raised as itself, not as a failure of the gang.
    """
    from penstock.cluster import gang

    for attempt in range(RETRIES + 1):
        try:
            return gang.run(
                client,
                function,
                arguments(),
                ranks=ranks,
                title=title,
                total=None if total is None else total(),
                unit=unit,
                quiet=quiet,
                on_metrics=on_metrics,
            )
        except GangError as error:
            cause = error.__cause__
            if isinstance(cause, PenstockError) and not isinstance(cause, ClusterError):
                raise cause from error
            if attempt == RETRIES or not error.may_retry:
                raise
            if not quiet:
                print(f"{error.what}: starting its gang again", file=sys.stderr)
    raise AssertionError
