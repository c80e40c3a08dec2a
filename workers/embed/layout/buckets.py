"""The edges of a graph in buckets: bucket (i, j) has the edges from partition i to partition j.

heads.npy, tails.npy     row of each end in its partition, bucket after bucket
relations.npy            of each edge, if the graph has relations
weights.npy              of each edge, over their mean, if the training is weighted

They are made when a training begins or resumes, and mapped. Each rank sorts a share of the edges
into its own section of the files; no other rank writes to its pages. The edges of a bucket are
stored shuffled, so any consecutive edges are a sample of the bucket; ``phase`` mixes the edges of
several buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import CSR, EDGE_COLUMNS, id_dtype, offsets_of
from penstock.errors import InputError, UsageError
from penstock.files import map_npy
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.bucket_rules import Columns, Runs
from penstock.kernels.cpu.buckets import count_edges, mix_keys, scatter_edges
from penstock.kernels.cpu.buckets import shuffle_edges as shuffle
from penstock.sizes import need_disk
from penstock.system_errors import full_disk_explained
from penstock.threads import spread
from penstock.workers.comm.single import SingleRank
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import Share

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

PIECE = 1 << 22  # edges that a thread counts or scatters together
GROUP = 1 << 18  # edges that a thread shuffles together: their ends fit into a core's cache
BatchColumns = tuple[AnyArray, AnyArray | None, AnyArray, AnyArray | None]
"""Heads, relations (or None), tails and weights (or None)."""

_GAP = 1 << 15  # edges between two sections: more than a page of any of the files
_HEADER = 128  # bytes of a file without edges
_GROUPS = 1024  # of a bucket, at most: the number of positions that are written to in turn


@dataclass(frozen=True, eq=False)
class EdgeBuckets:
    """All buckets, mapped or on a GPU.

    columns  heads and tails (edges,) int32, or int64 if a partition has more rows than int32 can
             count; relations (edges,) int32, or None; weights (edges,) float32, or None
    offsets  (sections, partitions ** 2 + 1) int64
    """

    columns: Columns
    offsets: Array

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return math.isqrt(self.offsets.shape[1] - 1)

    def runs(self, share: Share) -> list[tuple[int, int]]:
        """Return the first edge of a share, and the first after it, in each section."""
        bucket, part, of = share.bucket[0] * self.partitions + share.bucket[1], share.part, share.of
        found = []
        for begin, end in self.offsets[:, bucket : bucket + 2].tolist():
            size = end - begin
            found.append((begin + size * part // of, begin + size * (part + 1) // of))
        return found

    def count(self, shares: Sequence[Share]) -> int:
        """Return the number of edges of all shares together."""
        return sum(end - begin for share in shares for begin, end in self.runs(share))

    def phase(
        self,
        shares: Sequence[Share],
        first_rows: Mapping[int, int],
        *,
        rows: int,
        seed: int,
        which: int,
    ) -> PhaseEdges:
        """Return the edges of shares mixed, as rows of a buffer.

        first_rows  of each partition in the buffer
        rows        of the whole buffer: determines whether they fit into 32 bits
        which       unique to the phase in the training run; with the seed it determines the order
        """
        found = [(s.bucket, *run) for s in shares for run in self.runs(s)]
        runs = Runs(
            begins=np.array([begin for _, begin, _ in found], np.int64),
            offsets=np.cumsum([0, *(end - begin for _, begin, end in found)], dtype=np.int64),
            head_rows=np.array([first_rows[bucket[0]] for bucket, _, _ in found], np.int64),
            tail_rows=np.array([first_rows[bucket[1]] for bucket, _, _ in found], np.int64),
            keys=mix_keys(seed, which),
        )
        count = sum(end - begin for _, begin, end in found)
        return PhaseEdges(self.columns, runs, id_dtype(rows), count)


@dataclass(frozen=True, eq=False)
class PhaseEdges:
    """The edges of one phase in a shuffled order; any batch can be read.

    Every batch is a sample of all buckets of the phase. Several threads may call ``batch``, also
    for the next batch while one is trained.

    runs    as ``mix_edges`` takes them, where the edges are
    copied  a future that ends when they are on the GPU; None: they are where they belong
    """

    columns: Columns
    runs: Runs
    dtype: np.dtype[Any]
    count: int
    copied: Future[None] | None = None

    def __len__(self) -> int:
        return self.count

    def batch(self, start: int, stop: int) -> BatchColumns:
        """Return the columns of edges ``start`` to ``stop``, nodes as rows."""
        if self.copied is not None:
            self.copied.result()
        like, size = self.runs.keys, max(0, min(stop, self.count) - start)
        kinds = self.dtype, self.dtype, np.dtype(np.int32), np.dtype(np.float32)
        heads, tails, relations, weights = out = tuple(
            None if column is None else np.empty_like(like, shape=size, dtype=kind)
            for column, kind in zip(self.columns, kinds, strict=True)
        )
        kernel("buckets", like).mix_edges(self.columns, self.runs, self.count, start, out)
        assert heads is not None
        assert tails is not None
        return heads, relations, tails, weights


def build_buckets(
    graph: Graph,
    layout: NodeLayout,
    folder: Path,
    *,
    comm: AnyCommunicator | None = None,
    seed: int = 0,
    weighted: bool = False,
    chosen: Array | None = None,
    threads: int | None = None,
) -> EdgeBuckets:
    """Sort the edges of a graph into buckets, shuffle each, and return them mapped.

    Memory holds only the counts of each piece; edges go from mapped file to mapped file. The result
    does not depend on the number of threads. InputError if a weight is negative or not finite, or
    all are 0.

    folder    the output, instead of what a killed run left there
    comm      of the ranks, which sort a share of the edges each [default: one rank]
    weighted  whether edges have the graph's weights, divided by their mean
    chosen    whether the edges of each node's row are sorted: (nodes,) bool [default: of every row]
    """
    comm = comm or SingleRank()
    names = graph.manifest.relations
    relations = None if names is None else len(names)
    edges, buckets = edges_of(graph, chosen), layout.partitions**2
    groups = groups_of(edges, buckets)
    every = list(row_pieces(graph, min(PIECE, max(1, graph.num_edges // comm.size))))
    sizes = [rows_of(graph, piece, chosen).edges for piece in every]
    first, stop = (len(every) * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    pieces, firsts = every[first:stop], np.cumsum([0, *sizes])[first:]
    counts = np.zeros((len(pieces), buckets * groups), np.int64)
    totals = np.zeros(len(pieces))  # of weights

    def count(number: int) -> None:
        piece = rows_of(graph, pieces[number], chosen)
        drawn = groups, seed, int(firsts[number])
        counts[number] = count_edges(piece, layout.starts, layout.positions, *drawn)
        if weighted:
            totals[number] = _total_weight(rows_of(graph, pieces[number]), graph)

    spread(count, range(len(pieces)), threads)
    total_weight = sum(comm.allgather(float(totals.sum())))
    if weighted and total_weight == 0:
        raise InputError(f"all edges of {graph.path} have weight 0", expected="a weight above 0")
    scale = np.float32(graph.num_edges / total_weight if weighted else 1)
    # The beginning of each section, and of the groups in it.
    begin, offsets = 0, []
    for number, of_rank in enumerate(comm.allgather(counts.sum(axis=0))):
        begins = begin + np.concatenate([[0], np.cumsum(of_rank)])
        length = int(begins[-1])
        begin = length + _GAP
        offsets.append(begins[::groups])
        if number == comm.rank:
            mine = begins
    dtype = id_dtype(max(layout.sizes))
    kinds = {"heads": dtype, "tails": dtype}
    kinds |= {} if relations is None else {"relations": np.dtype(np.int32)}
    kinds |= {"weights": np.dtype(np.float32)} if weighted else {}
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():  # left by a killed run: as large as the new ones
            path.unlink()
        size = length * sum(kind.itemsize for kind in kinds.values())
        need_disk(folder, size, f"the edge buckets of {graph.path}")
        for name, kind in kinds.items():
            _make(folder / f"{name}.npy", length, kind)
    comm.barrier()
    if not (folder / "heads.npy").is_file():
        raise not_shared(f"rank {comm.rank} on {gethostname()}", f"{folder}, which rank 0 has made")
    opened = {name: _open(folder / f"{name}.npy") for name in kinds}
    out = _columns(opened)
    at = mine[:-1] + np.cumsum(counts, axis=0) - counts

    def scatter(number: int) -> None:
        piece = rows_of(graph, pieces[number], chosen)
        weights = np.asarray(piece.weights, np.float32) * scale if weighted else None
        where = layout.starts, layout.positions, at[number], out, groups, seed
        scatter_edges(replace(piece, weights=weights), *where, int(firsts[number]))

    def mix(group: int) -> None:
        a, b = int(mine[group]), int(mine[group + 1])
        shuffle(_columns({name: array[a:b] for name, array in opened.items()}), seed, a)

    spread(scatter, range(len(pieces)), threads)
    spread(mix, range(buckets * groups), threads)
    # Ranks on other hosts read the files from the disk.
    for array in opened.values():
        if comm.size > 1 and isinstance(array, np.memmap):
            array.flush()
    comm.barrier()
    if comm.size > 1:
        opened = {name: _open(folder / f"{name}.npy", "r") for name in kinds}
    for array in opened.values():
        array.flags.writeable = False
    return EdgeBuckets(_columns(opened), np.array(offsets))


def groups_of(edges: int, buckets: int) -> int:
    """Return in how many groups each bucket is shuffled."""
    return min(max(1, -(-edges // (GROUP * buckets))), _GROUPS)


def not_shared(who: str, what: str) -> UsageError:
    """Return the error of a host that does not see the files of a run that another has written."""
    return UsageError(
        f"{who} does not see {what}",
        expected="a run in a folder that all hosts share",
        remedy="Give a folder on shared storage",
    )


def row_pieces(graph: Graph, size: int = PIECE) -> Iterator[tuple[int, int, int]]:
    """Yield (shard, first row, last row) of consecutive rows with about ``size`` edges."""
    for number in range(graph.num_shards):
        shard = graph.shard(number)
        start = 0
        while start < shard.rows:
            wanted = int(shard.indptr[start]) + size
            stop = int(np.searchsorted(shard.indptr, wanted, side="right")) - 1
            stop = min(max(stop, start + 1), shard.rows)
            yield number, start, stop
            start = stop


def rows_of(graph: Graph, piece: tuple[int, int, int], chosen: Array | None = None) -> CSR:
    """Return a range of rows, as ``row_pieces`` yields it; rows that are not chosen are empty."""
    shard, start, stop = piece
    rows = graph.shard(shard).row_range(start, stop)
    if chosen is None:
        return rows
    here = chosen[rows.first_row : rows.first_row + rows.rows]
    degrees = rows.degrees()
    of_edges = np.repeat(here, degrees)
    columns = {name: getattr(rows, name) for name in ("indices", *EDGE_COLUMNS)}
    kept: dict[str, Any] = {n: None if a is None else a[of_edges] for n, a in columns.items()}
    return replace(rows, indptr=offsets_of(np.where(here, degrees, 0)), **kept)


def edges_of(graph: Graph, chosen: Array | None) -> int:
    """Return the number of edges in the rows that are chosen; None: all."""
    return graph.num_edges if chosen is None else int(graph.degrees[chosen].sum())


def _make(path: Path, edges: int, dtype: np.dtype[Any]) -> None:
    if edges:
        map_npy(path, (edges,), dtype)
        return
    with full_disk_explained(path):
        np.save(path, np.empty(0, dtype))


def _open(path: Path, mode: Literal["r", "r+"] = "r+") -> Array:
    # A file without edges cannot be mapped.
    empty = path.stat().st_size <= _HEADER
    found: Array = np.load(path, mmap_mode=None if empty else mode)
    return found


def _columns(given: Mapping[str, Array]) -> Columns:
    return given["heads"], given["tails"], given.get("relations"), given.get("weights")


def _total_weight(rows: CSR, graph: Graph) -> float:
    weights = np.asarray(rows.weights, np.float64)
    bad = np.flatnonzero(~((weights >= 0) & np.isfinite(weights.astype(np.float32))))
    if len(bad):
        source = rows.first_row + int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        ends = graph.user_ids([source, int(rows.indices[bad[0]])]).to_pylist()
        raise InputError(
            f"{graph.path} has a weight that --weighted cannot use, on the edge from {ends[0]} "
            f"to {ends[1]}",
            expected="weights of 0 or more, finite in single precision",
            got=str(weights[bad[0]]),
            remedy="Correct the weight and run penstock etl again, or train without --weighted",
        )
    return float(weights.sum())
