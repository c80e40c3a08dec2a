"""A separate process compiles the kernels of a job while the job starts and reads its input.

A first run compiles for seconds, and Numba uses one core for that. This process begins with the
kernels that the job needs last. If one process compiles a kernel, the other waits for it and loads
it (kernels/compiled.py).
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock import kernels
from penstock.caches import cache_folder
from penstock.limits import cores
from penstock.workers.signatures import KERNELS

_LOOK_EVERY = 0.2


def compile_ahead(*jobs: str) -> None:
    """Begin to compile the CPU kernels of jobs, if they are not cached and a core is free."""
    known = [job for job in jobs if _is_missing(job)]
    if not known or cores() < 2 or os.environ.get("NUMBA_DISABLE_JIT") or cache_folder() is None:
        return
    with suppress(OSError):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *known],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=process.wait, name="compiles-ahead", daemon=True).start()


def _is_missing(job: str) -> bool:
    """Return whether the last kernel that a job calls has not been compiled since it changed."""
    if job not in KERNELS:
        return False
    module, _, name = next(iter(KERNELS[job])).rpartition(".")
    place = Path(kernels.__file__).parent / "cpu" / module.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    named, own = os.environ.get("NUMBA_CACHE_DIR"), cache_folder()
    folders = [Path(named)] if named else [source.parent / "__pycache__", *([own] if own else [])]
    changed = source.stat().st_mtime
    found = (one for each in folders for one in each.glob(f"**/{source.stem}.{name}-*.nbi"))
    return not any(one.stat().st_mtime > changed for one in found)


def signature_of(text: str) -> tuple[Any, ...]:
    """Return Numba's types: ``f4`` a number, ``f4:2`` an array, ``f4:2!`` read-only, ``(...)``."""
    import numpy as np
    from numba import from_dtype, types

    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            whole = types.BaseTuple.from_types(tuple(stack.pop()))
            stack[-1].append(whole)
        elif token == "none":
            stack[-1].append(types.none)
        else:
            kind, _, shape = token.partition(":")
            found = from_dtype(np.dtype(kind))
            if shape:
                found = types.Array(found, int(shape[0]), "C", readonly=shape.endswith("!"))
            stack[-1].append(found)
    return tuple(stack[0])


def _main(jobs: list[str]) -> None:
    folder, parent = cache_folder(), os.getppid()
    if folder is None:
        return

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    from penstock.workers.resources.device import shows_gpu

    if shows_gpu():
        return
    with (folder / "ahead.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process compiles it
        from penstock.kernels.compiled import compile_unless_busy

        for job in jobs:
            for name, signature in KERNELS[job].items():
                module, _, function = name.rpartition(".")
                kernel = getattr(import_module(f"penstock.kernels.cpu.{module}"), function)
                compile_unless_busy(kernel, signature_of(signature))


if __name__ == "__main__":
    _main(sys.argv[1:])
