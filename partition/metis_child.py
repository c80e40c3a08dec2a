"""METIS in a process of its own: ``python metis_child.py '{"fd": ..., ...}'``.

METIS is C: it cannot be interrupted, and a failure inside it may end the process. Here that ends
nobody else. The graph lies in memory that both processes share; nothing is copied. This file
imports nothing of penstock, so that it runs by its path alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

_PR_SET_PDEATHSIG = 1


def main(job: dict[str, Any]) -> None:
    """Partition the shared graph and print the edge cut; parts go to the end of the memory."""
    import pymetis

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        # Where memory runs out, Linux shall end this process and not its parent.
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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
