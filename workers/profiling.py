"""Dask's statistical profile, which can deadlock in some Pythons.

A worker samples the stacks of its threads every ten milliseconds. Before Python 3.12.5 the
interpreter may collect garbage while it holds the lock of the list of threads, and deadlocks if a
freed object belongs to a thread (CPython's issue 106883).
"""

from __future__ import annotations

import sys
from typing import Any

MAY_HANG = sys.version_info < (3, 12, 5)


def without_profile() -> Any:
    """Make workers started from now on take no profile, unless it is safe in this Python.

    It is also a context manager.
    """
    import dask

    return dask.config.set({"distributed.worker.profile.enabled": False} if MAY_HANG else {})
