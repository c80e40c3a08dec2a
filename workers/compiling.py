"""Noticing that kernels are compiled for long, where they are: in a worker's process.

What is sent to a worker by name lies here, so that it imports nothing of its client's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from penstock.workers.comm.reports import Reports

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

COMPILING = "compiling kernels"  # the metric that says so
AFTER = 2.0  # seconds of compiling
_EVERY = 0.25


@contextmanager
def notice_compiling(notice: Callable[[], None]) -> Iterator[None]:
    """Call ``notice``, in a thread of its own, once Numba has compiled for AFTER seconds within."""
    ended, before = threading.Event(), _seconds()

    def watch() -> None:
        while not ended.wait(_EVERY):
            if _seconds() - before > AFTER:
                notice()
                return

    threading.Thread(target=watch, name="notice-compiling", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def call_named(function: str, comm: AnyCommunicator, *arguments: Any) -> Any:
    """Call a rank's function that is given as ``module:function``."""
    return resolve_name(function)(comm, *arguments)


def as_rank(function: Callable[..., Any], comm: AnyCommunicator, *arguments: Any) -> Any:
    """Call a rank's function, and report when it compiles."""

    def say() -> None:
        with suppress(Exception):  # of a gang that is given up: its own thread raises that
            comm.log(**{COMPILING: 1})

    with notice_compiling(say):
        return function(comm, *arguments)


def as_task(name: str, step: Callable[..., Any], *call: Any, **shared: Any) -> Any:
    """Run ``step(*call, **shared)`` on a worker, and report under ``name`` when it compiles."""
    reports = Reports(name, rank=0)
    with notice_compiling(lambda: reports({"metrics": {COMPILING: 1}})):
        return step(*call, **shared)


def _seconds() -> float:
    # Where no kernel of CPUs is used, Numba is not imported for this.
    module = sys.modules.get("penstock.kernels.compiled")
    return 0.0 if module is None else float(getattr(module, "compiled_seconds", float)())
