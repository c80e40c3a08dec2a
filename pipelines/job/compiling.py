"""A line on the terminal while workers compile kernels, which would look like a hang.

Numba compiles a kernel where it is first used after an installation, and keeps it in its cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.workers.compiling import COMPILING, as_rank


class CompilingNotice:
    """Shows that workers compile, once for a step: when the first of them says so."""

    def __init__(self, title: str) -> None:
        self.title, self._shown = title, False

    def taken_from(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Return a report's metrics without what is said of compiling, which is shown."""
        if COMPILING not in metrics:
            return metrics
        if not self._shown:
            print(f"{self.title}: compiling kernels (once)", file=sys.stderr, flush=True)
            self._shown = True
        return {name: value for name, value in metrics.items() if name != COMPILING}

    def hear(self, report: dict[str, Any]) -> None:
        """Take a report of a task."""
        self.taken_from(report.get("metrics", {}))


def of_ranks(
    function: Callable[..., Any],
    on_metrics: Callable[[int, dict[str, Any]], None] | None,
    title: str,
    *,
    quiet: bool,
) -> tuple[Callable[..., Any], Callable[[int, dict[str, Any]], None] | None]:
    """Return a function of ranks that says when it compiles, and what shows that."""
    if quiet:
        return function, on_metrics
    notice = CompilingNotice(title)

    def heard(rank: int, metrics: dict[str, Any]) -> None:
        rest = notice.taken_from(metrics)
        if rest and on_metrics is not None:
            on_metrics(rank, rest)

    return partial(as_rank, function), heard
