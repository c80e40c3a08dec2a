"""The tasks of a run: pieces of the input, or the end of one large graph; they run on workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.ranks import Ranks
from penstock.limits import cores
from penstock.output import Pieces
from penstock.pipelines.centrality.base import Base, structures_of
from penstock.pipelines.centrality.compute import Columns, compute, compute_rows
from penstock.pipelines.centrality.node_values import kept_values
from penstock.pipelines.centrality.one_graph import on_device
from penstock.pipelines.centrality.options import (
    IN_ROWS,
    OF_PATHS,
    OF_TRIANGLES,
    STRONG,
    CentralityOptions,
)
from penstock.pipelines.centrality.output import save_results
from penstock.pipelines.centrality.pieces import (
    Piece,
    PieceSpec,
    device_bytes,
    matrix_bytes,
)
from penstock.pipelines.centrality.sources import (
    Shares,
    from_shares,
    keep_rows,
    kept_rows,
    without_columns,
)
from penstock.sizes import does_not_fit
from penstock.temporary import TemporaryFolder
from penstock.threads import spread
from penstock.workers.plugin import resources
from penstock.workers.resources.device import to_host
from penstock.workers.resources.upload import upload_rows

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

REMEDY = "Give workers more memory with --memory-limit, or start fewer with -n"


@dataclass(frozen=True)
class CentralityTask:
    """One run, as it is sent to tasks.

    memory  bytes that all tasks of a worker may use together
    base    whose values unchanged graphs take over
    """

    options: CentralityOptions
    records: Pieces
    memory: int
    base: Base | None = None


class _MemoryBudget:
    """Memory of this process that pieces share: a piece waits for others until enough is left."""

    def __init__(self) -> None:
        self._changed, self._used, self._users = threading.Condition(), 0, 0

    @contextmanager
    def hold(self, size: int, most: int) -> Iterator[None]:
        """Hold ``size`` bytes until the end of the block; a piece that is too large runs alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._users or self._used + size <= most)
            self._used, self._users = self._used + size, self._users + 1
        try:
            yield
        finally:
            with self._changed:
                self._used, self._users = self._used - size, self._users - 1
                self._changed.notify_all()


class _Streams:
    """Streams of this process' GPU: one per piece that computes at the same time.

    One piece does not fill a GPU: its largest graphs end last, with one launch per size.
    """

    def __init__(self, count: int) -> None:
        self._turns = threading.BoundedSemaphore(count)
        self._memory, self._idle = _MemoryBudget(), list[Any]()

    @contextmanager
    def hold(self, size: int, most: int) -> Iterator[None]:
        """Launch on a stream that is idle until the end of the block; ``size`` bytes are needed."""
        import cupy

        with self._memory.hold(size, most), self._turns:
            try:
                stream = self._idle.pop()
            except IndexError:
                stream = cupy.cuda.Stream(non_blocking=True)
            try:
                with stream:
                    yield
            finally:
                self._idle.append(stream)


_STREAMS = 8
_LAUNCH_BYTES = (
    1 << 27
)  # bytes of a piece on the GPU besides its graphs: path counts of running blocks
_budget = _MemoryBudget()
_streams = _Streams(_STREAMS)
AHEAD = 2  # pieces that a task on a core reads or writes while it computes another; 0: none


def compute_pieces(task: CentralityTask, several: list[tuple[int, PieceSpec]]) -> None:
    """Compute pieces and write them; reading, computing and writing overlap.

    A task on a core computes one piece at a time, and reads or writes ``AHEAD`` others. A worker
    with a GPU holds as many pieces as it has cores, in several tasks or in one, and computes some
    of them at the same time.
    """
    threads, turn = 1 + AHEAD, threading.Lock()
    if resources().device is not None:
        threads = max(1, cores() // _threads_of_worker())
    threads = min(len(several), threads)
    if threads == 1:
        for number, spec in several:
            _compute_piece(task, turn, number, spec)
        return
    spread(lambda each: _compute_piece(task, turn, *each), several, threads)


def _threads_of_worker() -> int:
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return 1


def _compute_piece(
    task: CentralityTask, turn: AbstractContextManager[Any], number: int, spec: PieceSpec
) -> None:
    with _budget.hold(spec.bytes(task.options), task.memory):
        piece = spec.read(weighted=task.options.weighted)
        structure = None if piece.graphs is None else structures_of(piece.batch)
        batch, known = piece.batch, None
        if task.base is not None and structure is not None:
            known = task.base.look_up(structure)
            batch = known.rest(batch)
        found, distances = _computed(task, batch, task.options.wanted, turn)
        if known is not None:
            found = known.joined(piece.batch, found)
        save_results(task.records, number, piece, found, distances, structure, known)


def finish_graph(task: CentralityTask, number: int, spec: PieceSpec, count: int) -> None:
    """Compute the rest of one graph once all shares of its sources exist, and write it."""
    records = task.records
    with _budget.hold(spec.bytes(task.options), task.memory):
        piece = spec.read(weighted=task.options.weighted)
        if piece.failed:
            save_results(
                task.records, number, piece, without_columns(piece.batch, task.options), None
            )
            return
        wanted, distances, found = task.options.wanted, None, Columns()
        if wanted & OF_PATHS:
            shares = Shares.load(records, number, count)
            found = from_shares(records, number, shares, piece.batch, task.options)
        in_rows = wanted & {*IN_ROWS, STRONG}
        if task.options.parts is not None:
            found = found.joined(kept_rows(records, number))
            in_rows -= IN_ROWS
        if in_rows:
            found = found.joined(_in_rows(task, spec, piece, in_rows))
        rest = wanted - OF_PATHS - IN_ROWS - {STRONG}
        if rest or task.options.distances:
            more, distances = _rest(task, piece, rest)
            found = found.joined(more)
        save_results(task.records, number, piece, found, distances)


def _rest(
    task: CentralityTask, piece: Piece, wanted: frozenset[str]
) -> tuple[Columns, Array | None]:
    """Compute other metrics of one graph; of one that only a GPU needs, the host makes no batch."""
    of_triangles = wanted <= OF_TRIANGLES and not piece.one.directed and not task.options.distances
    if resources().device is None or not of_triangles:
        return _computed(task, piece.batch, wanted, nullcontext(), None)
    with _on_gpu(piece.one.gpu_bytes(wanted, task.options.parts)):
        return compute(piece.one.merged_on_gpu(), task.options, wanted), None


def _on_gpu(size: int) -> AbstractContextManager[None]:
    """Wait for this much GPU memory, and a stream."""
    return _streams.hold(size, resources().memory_bytes() // 2)


def compute_on_ranks(
    comm: AnyCommunicator, task: CentralityTask, number: int, spec: PieceSpec, threads: int
) -> None:
    """Compute the metrics of IN_ROWS of one graph as one rank of a gang; the first keeps them."""
    with _budget.hold(spec.bytes(task.options), task.memory):
        piece = spec.read(weighted=task.options.weighted)
        found = _in_rows(task, spec, piece, task.options.wanted & IN_ROWS, threads, comm)
    if comm.rank == 0:
        keep_rows(task.records, number, found)


def _in_rows(
    task: CentralityTask,
    spec: PieceSpec,
    piece: Piece,
    wanted: frozenset[str],
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> Columns:
    values = kept_values(task.options.node_values(), task.records)
    if task.base is not None and piece.graphs is None and "pagerank" in wanted:
        values["start"] = task.base.ranks(piece.nodes)
    with _rows(task, spec, piece, wanted, ranks) as (rows, folder):
        if ranks is None:
            piece.count(rows)
        return compute_rows(
            rows,
            task.options,
            wanted,
            values,
            directed=piece.one.directed,
            folder=folder,
            threads=threads,
            ranks=ranks,
        )


@contextmanager
def _rows(
    task: CentralityTask,
    spec: PieceSpec,
    piece: Piece,
    wanted: frozenset[str],
    ranks: Ranks | None,
) -> Iterator[tuple[Sequence[CSR], Path | None]]:
    """Give the rows of one graph, on this worker's GPU if it has one, and a folder for in-edges
    that exceed memory."""
    if resources().device is None:
        on_disk = spec.in_edges_on_disk(task.options, task.memory)
        in_edges = TemporaryFolder("in-edges", task.records.folder)
        with in_edges if on_disk else nullcontext() as folder:
            yield piece.one.rows, folder
        return
    with _on_gpu(piece.one.gpu_bytes(wanted, task.options.parts)):
        share = None if piece.one.directed else ranks  # then each takes its in-edges from all
        yield upload_rows(piece.one.rows, weighted=True, ranks=share), None


def _computed(
    task: CentralityTask,
    batch: GraphBatch,
    wanted: frozenset[str],
    turn: AbstractContextManager[Any],
    threads: int | None = 1,
) -> tuple[Columns, Array | None]:
    """Return some metrics of a batch and, if asked, its distances; on the worker's GPU if any.

    turn     held while the piece computes on a core
    threads  that compute it on a CPU; None: all cores
    """
    options, device = task.options, resources().device
    matrix = matrix_bytes(batch.sizes, options) if options.distances else 0
    if matrix > task.memory:
        what = "the distances of all pairs of a graph"
        what = what if batch.graphs == 1 else f"those of {batch.graphs} graphs"
        remedy = f"{REMEDY}; or leave --distances out"
        raise does_not_fit(what, "in a worker's memory", matrix, task.memory, remedy=remedy)
    size = device_bytes(batch) + _LAUNCH_BYTES + matrix
    with turn if device is None else _on_gpu(size):
        batch = batch if device is None else on_device(batch)
        found = compute(batch, options, wanted, threads)
        distances = None
        if options.distances:
            distances = to_host(kernel("centrality", batch.indptr).distances(batch))
        del batch  # while its memory is held
    return found, distances
