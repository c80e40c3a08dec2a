"""METIS through pymetis: its adjacency, its memory, and a run that cannot kill this process."""

from __future__ import annotations

import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.cpu.transpose import EDGE_BYTES
from penstock.progress import Progress
from penstock.threads import spread
from penstock.writer import row_cuts

# METIS' sorted heavy edge matching (SHEM) and its counts of permille over the mean.
_SHEM = 1

_MOST_TRIES, _TRIED_ENTRIES = 8, 2_000_000
_ROUNDS, _LONG_ROUNDS = 10, 20  # of refinement at each level; 10 is METIS' own default

# Bytes of METIS' own process per node and per entry of the adjacency, including the shared graph:
# measured on R-MAT graphs, which coarsen badly and so need the most.
BYTES_AT_LEAST = 100 << 20
BYTES_A_NODE = 250
BYTES_AN_ENTRY = 150
# Its approximate time: to start a process that imports pymetis, and then from 5e-7 per entry for a
# small graph to 3e-6 on a busy machine.
SECONDS_AT_LEAST = 1.0
SECONDS_AN_ENTRY = 2e-6
_LOOK_EVERY = 0.2  # seconds
SILENT = 30.0  # seconds, like the time-out of a worker's heartbeat


class MetisError(Exception):
    """METIS gave no result; ``memory``: probably because memory ran out."""

    def __init__(self, why: str, *, memory: bool = False) -> None:
        super().__init__(why)
        self.memory = memory


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The graph in METIS' format, in memory shared with its process.

    indptr   (nodes + 1,) int64
    indices  (entries,)   int64: each row's distinct other nodes, ascending; symmetric
    weights  (nodes,)     int64: out-degree + 1, the paper's weight
    result   (nodes,)     int64: METIS' output
    """

    indptr: Array
    indices: Array
    weights: Array
    result: Array
    file: int


def memory_needed(graph: Graph) -> int:
    """Return the approximate bytes that METIS takes for ``graph``, before reading it."""
    return BYTES_AT_LEAST + BYTES_A_NODE * graph.num_nodes + BYTES_AN_ENTRY * _entries(graph)


def adjacency_needed(graph: Graph) -> int:
    """Return the most bytes that ``shared_adjacency`` takes, including its inputs."""
    made_of = graph.num_edges * EDGE_BYTES if graph.manifest.directed else 0
    return 8 * (_entries(graph) + 6 * graph.num_nodes) + made_of


def seconds_needed(graph: Graph) -> float:
    """Return the approximate seconds that METIS takes for ``graph``, before reading it."""
    return _seconds(_entries(graph))


def _seconds(entries: int) -> float:
    return SECONDS_AT_LEAST + SECONDS_AN_ENTRY * entries


def _entries(graph: Graph) -> int:
    return graph.num_edges * (2 if graph.manifest.directed else 1)


@contextmanager
def shared_adjacency(graph: Graph) -> Iterator[Adjacency]:
    """Give the symmetric adjacency of ``graph`` without loops and repeats, in shared memory."""
    kernels = kernel("adjacency", graph.degrees)
    in_indptr, in_indices = _reversed(graph) if graph.manifest.directed else _NOTHING

    def count(piece: CSR) -> None:
        counts[piece.first_row : piece.first_row + piece.rows] = kernels.neighbour_counts(
            piece.indptr, piece.indices, piece.first_row, in_indptr, in_indices
        )

    counts = np.zeros(graph.num_nodes, np.int64)
    spread(count, row_pieces(graph))
    nodes, entries = graph.num_nodes, int(counts.sum())
    lengths = [nodes + 1, entries, nodes, nodes]
    file = _anonymous_file(8 * sum(lengths))
    try:
        shared = np.frombuffer(mmap.mmap(file, 0), np.int64)
        indptr, indices, weights, result = np.split(shared, np.cumsum(lengths)[:-1])
        np.cumsum(counts, out=indptr[1:])
        weights[:] = graph.degrees + 1

        def fill(piece: CSR) -> None:
            starts = indptr[piece.first_row : piece.first_row + piece.rows]
            lists = piece.indptr, piece.indices, piece.first_row, in_indptr, in_indices
            kernels.neighbour_lists(*lists, starts, indices)

        spread(fill, row_pieces(graph))
        yield Adjacency(indptr, indices, weights, result, file)
    finally:
        os.close(file)


def run_metis(
    graph: Adjacency,
    k: int,
    *,
    tolerance: float,
    recursive: bool,
    seed: int,
    timeout: float = SILENT,
    quiet: bool = True,
) -> tuple[Array, int]:
    """Return METIS' parts, (nodes,) int32, and its edge cut; MetisError if there is none.

    METIS reports no progress: the time that has passed is shown, of the estimated one. If its
    process has not computed for ``timeout`` seconds, such as a stopped one, it is killed, and METIS
    has failed.
    """
    tries = max(1, min(_MOST_TRIES, _TRIED_ENTRIES // max(len(graph.indices), 1)))
    job = {
        "fd": graph.file,
        "nodes": len(graph.weights),
        "edges": len(graph.indices),
        "k": k,
        "recursive": recursive,
        "options": {
            "ctype": _SHEM,
            "ufactor": round(1000 * (tolerance - 1)),
            # The best of several tries if one takes milliseconds.
            "ncuts": tries,
            "niter": _LONG_ROUNDS if tries > 1 else _ROUNDS,
            # METIS takes a positive int; its default, -1, is a fixed seed too.
            "seed": seed % (2**31 - 1),
        },
    }
    child = Path(__file__).with_name("metis_child.py")
    command = [sys.executable, "-P", str(child), json.dumps(job)]
    process = subprocess.Popen(
        command, pass_fds=[graph.file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    estimated = math.ceil(_seconds(len(graph.indices)))
    try:
        with Progress("METIS", total=estimated, unit="s", quiet=quiet) as progress:
            answer, complaint = _answer(process, progress, timeout)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise _failure(process.returncode, complaint)
    parts = graph.result.astype(np.int32)
    if len(parts) and (parts.min() < 0 or parts.max() >= k):
        raise MetisError("METIS returned invalid parts")
    return parts, int(json.loads(answer)["cut"])


def _answer(process: subprocess.Popen[str], progress: Progress, timeout: float) -> tuple[str, str]:
    """Return what METIS' process prints; MetisError if it has not computed for ``timeout`` seconds.

    Computing is all that it does, but if it is ready to run on a busy machine, or waits for a disk,
    it may wait for long.
    """
    import psutil

    metis, cpu, idle = psutil.Process(process.pid), -1.0, 0.0
    begun = last = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=_LOOK_EVERY)
        except subprocess.TimeoutExpired:
            progress.advance(int(time.monotonic() - begun) - progress.done)
        with suppress(psutil.Error):  # it has ended
            status, times, before = metis.status(), metis.cpu_times(), cpu
            cpu = times.user + times.system
            waits = status in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
            # Time in which this process itself was stopped, as after Ctrl-Z, does not count.
            passed = min(time.monotonic() - last, 2 * _LOOK_EVERY)
            idle = 0.0 if waits or cpu != before else idle + passed
            if idle > timeout:
                what = f"METIS (process {process.pid}, {status}) was killed"
                raise MetisError(f"{what} after {timeout:.3g} s without computing")
        last = time.monotonic()


def row_pieces(graph: Graph) -> Iterator[CSR]:
    """Yield the rows of every shard in pieces small enough for several threads to share."""
    for number in range(graph.num_shards):
        shard = graph.shard(number)
        for start, stop in row_cuts(shard.indptr, _PIECE_EDGES):
            yield shard.row_range(start, stop)


_PIECE_EDGES = 1 << 21
_NOTHING = np.empty(0, np.int64), np.empty(0, np.int32)


def _reversed(graph: Graph) -> tuple[Array, Array]:
    rows = [graph.shard(number) for number in range(graph.num_shards)]
    found = CSR.concatenate(kernel("transpose", graph.degrees).transpose(rows))
    return found.indptr, found.indices


def _anonymous_file(size: int) -> int:
    """Return the descriptor of memory that a child process can map."""
    if hasattr(os, "memfd_create"):
        # Unlike /dev/shm it is not limited to the 64 MB that containers get.
        file = os.memfd_create("penstock-metis")
    else:
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.ftruncate(file, size)
    return file


def _failure(code: int, complaint: str) -> MetisError:
    lines = complaint.strip().splitlines()
    last = lines[-1] if lines else "no message"
    if code >= 0:
        return MetisError(f"METIS failed: {last}", memory="memory" in last.lower())
    name = signal.Signals(-code).name
    # Linux ends a process by SIGKILL if memory runs out.
    return MetisError(f"METIS was ended by {name}", memory=-code == signal.SIGKILL)
