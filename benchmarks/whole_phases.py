"""Run ``penstock`` with these arguments, and write the parts of its time as JSON to $PHASES.

For bench_whole.py and bench_word2vec.py. The client's thread is cut into phases without overlap;
other threads of the process (tasks on threads) are summed separately. ``spans`` lists the timed
calls of every thread with their times, to show concurrency. Processes of workers are not measured.
GPU work counts at the host's wait for it.
"""

import atexit
import builtins
import importlib
import json
import os
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

BEGUN = time.perf_counter()
# Timed functions: module, name, phase. A phase excludes the phases inside it.
CALLS = (
    ("numba.core.caching", "Cache.load_overload", "load"),
    ("numba.core.compiler", "compile_extra", "compile"),
    ("penstock.kernels.cuda.module", "_kernel", "compile"),
    ("penstock.graph", "Graph.open", "read"),
    ("penstock.graph", "Graph.csr", "read"),
    ("penstock.graph", "Graph.node_column", "read"),
    ("penstock.graph", "Graph.features", "read"),
    ("penstock.pipelines.walk.output", "WalkWriter.__call__", "write"),
    ("penstock.files", "file_entry", "write"),
    ("penstock.workers.training.checkpoint", "save", "write"),
    ("penstock.workers.walk.held", "_load", "rows"),
    ("penstock.workers.word2vec.train", "_Trainer._counts", "counts"),
    ("penstock.workers.word2vec.train", "_Trainer._noise", "tables"),
    ("penstock.workers.word2vec.train", "_Trainer._vectors", "vectors"),
    ("penstock.workers.word2vec.train", "_Trainer._epochs", "train"),
    ("penstock.workers.word2vec.state", "Checkpoints.save", "save"),
    ("penstock.workers.word2vec.state", "Parts.save", "encode"),
    ("penstock.workers.resources.device", "_make_context", "context"),
    ("penstock.kernels.cuda.module", "start_compiler", "compiler"),
    ("penstock.pipelines.vectors.store", "save_vectors", "write"),
    ("penstock.output", "publish", "publish"),
)
_SHORT = 0.02  # seconds; shorter spans are left out


class Clock(threading.local):
    """The phases of one thread: the innermost gets the time."""

    def __init__(self) -> None:
        self.stack, self.since, self.spent = ["client"], time.perf_counter(), Counter()
        self.begun: list[tuple[str, float]] = []
        EVERY.append((threading.current_thread() is threading.main_thread(), self.spent))
        self.thread = len(EVERY) - 1

    def enter(self, phase: str | None, name: str = "") -> None:
        now = time.perf_counter()
        self.spent[self.stack[-1]] += now - self.since
        self.since = now
        if phase:
            self.stack.append(phase)
            self.begun.append((name or phase, now))
            return
        self.stack.pop()
        if self.begun:
            said, begun = self.begun.pop()
            if now - begun >= _SHORT:
                SPANS.append((begun - BEGUN, now - BEGUN, self.thread, said))


EVERY: list[tuple[bool, Counter]] = []
SPANS: list[tuple[float, float, int, str]] = []  # from and to, in seconds; thread; what
CLOCK = Clock()


def timed(call, phase, name=""):
    def inner(*args, **options):
        CLOCK.enter(phase, name)
        try:
            return call(*args, **options)
        finally:
            CLOCK.enter(None)

    return inner


def timed_connect(connect):
    @contextmanager
    def inner(*args, **options):
        given = connect(*args, **options)
        client = timed(given.__enter__, "start")()
        CLOCK.enter("tasks")
        try:
            yield client
        except BaseException:
            CLOCK.enter(None)
            if not timed(given.__exit__, "close")(*sys.exc_info()):
                raise
        else:
            CLOCK.enter(None)
            timed(given.__exit__, "close")(None, None, None)

    return inner


def patch(module: str, name: str, wrap) -> None:
    *path, last = name.split(".")
    owner = sys.modules[module]
    for part in path:
        owner = getattr(owner, part)
    found = owner.__dict__[last]
    if isinstance(found, classmethod):
        setattr(owner, last, classmethod(wrap(found.__func__)))
    else:
        setattr(owner, last, wrap(found))


WAITING = {
    (m, n): (lambda call, p=p, n=n: timed(call, p, f"{p}: {n.split('.')[-1]}")) for m, n, p in CALLS
}
WAITING["penstock.cluster.connect", "connect"] = timed_connect


def patching(load):
    """Time outermost imports, and wrap timed functions as soon as their module is loaded."""
    depth = threading.local()

    def inner(*args, **options):
        depth.now = getattr(depth, "now", 0) + 1
        if depth.now == 1:
            CLOCK.enter("imports", f"import {args[0]}")
        try:
            return load(*args, **options)
        finally:
            depth.now -= 1
            if depth.now == 0:
                CLOCK.enter(None)
            for module, name in list(WAITING):
                there = sys.modules.get(module)
                if there is not None and not getattr(there.__spec__, "_initializing", False):
                    patch(module, name, WAITING.pop((module, name)))

    return inner


def report() -> None:
    CLOCK.enter("exit")
    client = next(dict(spent) for main, spent in EVERY if main)
    tasks = sum((spent for main, spent in EVERY if not main), Counter())
    tasks.pop("client", None)
    seconds = time.perf_counter() - BEGUN
    body = {"seconds": seconds, "client": client, "threads": tasks, "modules": len(sys.modules)}
    body["spans"] = sorted(SPANS)
    Path(os.environ["PHASES"]).write_text(json.dumps(body))


def main() -> None:
    atexit.register(report)
    builtins.__import__ = patching(builtins.__import__)
    importlib.import_module = patching(importlib.import_module)
    from penstock.__main__ import main as penstock

    penstock()


if __name__ == "__main__":
    main()
