"""Dask's statistical profile, which some Pythons cannot take without the risk of a deadlock.

A worker samples the stacks of its threads every ten milliseconds. Before Python 3.12.5 the
interpreter may collect garbage while it holds the lock of the list of threads, and waits for itself
for ever if what it frees belongs to a thread (CPython's issue 106883): the worker stands still.
"""

from __future__ import annotations

import sys
from typing import Any

MAY_HANG = sys.version_info < (3, 12, 5)


def without_profile(*, unless_safe: bool = True) -> Any:
    """Have workers that are started from here on take no profile; a context manager, too.

    unless_safe  leave the profile as it is configured where this Python can take it
    """
    import dask

    if unless_safe and not MAY_HANG:
        return dask.config.set({})
    return dask.config.set({"distributed.worker.profile.enabled": False})
