"""METIS in a separate process: ``python metis_child.py '{"fd": ..., ...}'``.

METIS is C code: it cannot be interrupted, and a failure in it may end the process; here only this
one. Both processes share the memory of the graph; nothing is copied. This file imports nothing of
penstock, so that it runs by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

_PR_SET_PDEATHSIG = 1


def main(job: dict[str, Any]) -> None:
    """Partition the shared graph and print the edge cut; parts go to the end of the memory."""
    import pymetis

    with contextlib.suppress(OSError):
        # If memory runs out, Linux should end this process, not its parent.
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    nodes, edges = job["nodes"], job["edges"]
    shared = np.frombuffer(mmap.mmap(job["fd"], 0), np.int64)
    indptr, indices, weights, parts = np.split(
        shared, np.cumsum([nodes + 1, edges, nodes]).tolist()
    )
    result = pymetis.part_graph(
        job["k"],
        pymetis.CSRAdjacency(indptr, indices),
        vweights=weights,
        recursive=job["recursive"],
        options=pymetis.Options(**job["options"]),
    )
    parts[:nodes] = np.asarray(result.vertex_part)
    print(json.dumps({"cut": int(result.edge_cuts)}))


def run(job: dict[str, Any]) -> None:
    """Call ``main`` in a thread, while this one receives SIGTERM.

    METIS throws errors by raising SIGTERM in its own thread, and would treat one from outside as
    such an error: it would then return the parts that it was computing.
    """
    failure: list[BaseException] = []
    done = threading.Event()
    waiting, leader = threading.get_ident(), threading.get_native_id()

    def compute() -> None:
        _until_it_waits(leader)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        try:
            main(job)
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()
            signal.pthread_kill(waiting, signal.SIGUSR1)

    heard = {signal.SIGTERM, signal.SIGUSR1}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    threading.Thread(target=compute, daemon=True).start()
    while not done.is_set():
        if signal.sigwait(heard) == signal.SIGTERM:
            print("ended by SIGTERM", file=sys.stderr, flush=True)
            os._exit(1)
    if failure:
        raise failure[0]


def _until_it_waits(thread: int) -> None:
    """Return when a thread waits for SIGTERM: its blocked signals then lack it (on Linux).

    Before that, a SIGTERM would go to the only thread that does not block it.
    """
    status = Path(f"/proc/self/task/{thread}/status")
    for _ in range(5000):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            return
        blocked = next((line.split()[1] for line in lines if line.startswith("SigBlk")), "0")
        if not int(blocked, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
