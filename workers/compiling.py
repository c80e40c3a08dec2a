"""Noticing that kernels are compiled for long, where they are: in a worker's process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


def _seconds() -> float:
    # Where no kernel of CPUs is used, Numba is not imported for this.
    module = sys.modules.get("penstock.kernels.compiled")
    return 0.0 if module is None else float(getattr(module, "compiled_seconds", float)())
