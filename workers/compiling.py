"""A message on the client's terminal while workers compile kernels, which looks like a hang."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

AFTER = 2.0  # seconds of compiling
_EVERY = 0.25
_said: set[str] = set()


def call(
    title: str | None, function: Callable[..., Any] | str, *arguments: Any, **more: Any
) -> Any:
    """Call the function of a task or rank; if it compiles, the client reports that.

    title     of the step; None: no report. Each process reports it once.
    function  or its name, ``module:function``
    """
    found = resolve_name(function) if isinstance(function, str) else function
    ended, before, say = threading.Event(), _seconds(), _printer()

    def watch() -> None:
        while title is not None and title not in _said and not ended.wait(_EVERY):
            if _seconds() - before > AFTER:
                _said.add(title)
                say(f"{title}: compiling kernels (once)")

    threading.Thread(target=watch, name="notice-compiling", daemon=True).start()
    try:
        return found(*arguments, **more)
    finally:
        ended.set()


def _printer() -> Callable[[str], None]:
    """Return a function that prints a line at the client."""
    distributed = sys.modules.get("distributed")
    with suppress(ValueError, AttributeError):  # not a worker's thread
        worker = distributed.get_worker()  # type: ignore[union-attr]
        # As distributed.print does it; file 2 is stderr.
        return lambda text: worker.log_event("print", {"args": (text,), "file": 2, "flush": True})
    return lambda text: print(text, file=sys.stderr, flush=True)


def _seconds() -> float:
    # If no CPU kernel is used, Numba is not imported for this.
    module = sys.modules.get("penstock.kernels.compiled")
    return 0.0 if module is None else float(getattr(module, "compiled_seconds", float)())
