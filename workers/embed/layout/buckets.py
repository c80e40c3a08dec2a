"""The edges of a graph in buckets: bucket (i, j) has the edges from partition i to partition j.

heads.npy, tails.npy     row of each end in its partition, bucket after bucket
relations.npy            of each edge, if the graph has relations
weights.npy              of each edge, over their mean, if the training is weighted
offsets.npy              the beginning of bucket i * partitions + j
buckets.json             written last: the inputs that the buckets were made from

They are made once and mapped. The edges of a bucket are stored shuffled, so any consecutive edges
are a sample of the bucket; ``phase`` mixes the edges of several buckets.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import AnyArray, Array
from penstock.bounds import check_indices, check_indptr, check_length
from penstock.csr import CSR, id_dtype
from penstock.errors import CorruptFile, InputError, MissingFile, TruncatedFile
from penstock.files import atomic, remove_temporaries, save_npy
from penstock.formats import Format
from penstock.graph import Graph, load_npy
from penstock.kernels.cpu.buckets import count_edges, mix_edges, mix_keys, scatter_edges
from penstock.kernels.cpu.buckets import shuffle_edges as shuffle
from penstock.sizes import need_disk
from penstock.threads import spread
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import Share

PIECE = 1 << 22  # edges that a thread counts or scatters together
GROUP = 1 << 18  # edges that a thread shuffles together: their ends fit into a core's cache
_OPTIONAL = "relations", "weights"  # columns that only some buckets have
BatchColumns = tuple[AnyArray, AnyArray | None, AnyArray, AnyArray | None]
"""Heads, relations (or None), tails and weights (or None)."""

_GROUPS = 1024  # of a bucket, at most: the number of positions that are written to in turn
_REMEDY = "Remove the folder, and train again: buckets are rebuilt"
FORMAT = Format(
    name="penstock-embed-buckets",
    version=1,
    file="buckets.json",
    thing="folder of edge buckets",
    make="Train first",
    restore=_REMEDY,
    absent=MissingFile,
)


@dataclass(frozen=True, eq=False)
class EdgeBuckets:
    """All buckets, mapped.

    heads, tails  (edges,) int32, or int64 if a partition has more rows than int32 can count
    relations     (edges,) int32, or None
    offsets       (partitions ** 2 + 1,) int64
    weights       (edges,) float32, or None
    """

    heads: Array
    tails: Array
    relations: Array | None
    offsets: Array
    weights: Array | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return math.isqrt(len(self.offsets) - 1)

    @property
    def counts(self) -> Array:
        """The number of edges of each bucket: (partitions, partitions)."""
        return np.diff(self.offsets).reshape(self.partitions, self.partitions)

    @property
    def largest(self) -> int:
        """The number of edges of the largest bucket."""
        return int(self.counts.max(initial=0))

    def run(self, share: Share) -> tuple[int, int]:
        """Return the first edge of a share, and the first after it."""
        bucket = share.bucket[0] * self.partitions + share.bucket[1]
        begin, end = int(self.offsets[bucket]), int(self.offsets[bucket + 1])
        size = end - begin
        return begin + size * share.part // share.of, begin + size * (share.part + 1) // share.of

    def count(self, shares: Sequence[Share]) -> int:
        """Return the number of edges of all shares together."""
        return sum(end - begin for begin, end in map(self.run, shares))

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

        Parameters
        ----------
        shares, first_rows
            The shares of the phase, and the buffer's first row of each partition.
        rows
            The number of rows of the whole buffer: determines whether they fit into 32 bits.
        seed, which
            Determine the permutation; ``which`` is unique to the phase in the training run.
        """
        runs = [self.run(share) for share in shares]
        return PhaseEdges(
            self.heads,
            self.tails,
            self.relations,
            self.weights,
            begins=np.array([begin for begin, _ in runs], np.int64),
            offsets=np.cumsum([0, *(end - begin for begin, end in runs)], dtype=np.int64),
            head_rows=np.array([first_rows[s.bucket[0]] for s in shares], np.int64),
            tail_rows=np.array([first_rows[s.bucket[1]] for s in shares], np.int64),
            keys=mix_keys(seed, which),
            dtype=id_dtype(rows),
            count=sum(end - begin for begin, end in runs),
        )

    @staticmethod
    def open(folder: Path, layout: NodeLayout, relations: int | None) -> EdgeBuckets:
        """Return the buckets in ``folder``, mapped, every index checked.

        Parameters
        ----------
        folder
            The folder of ``build_buckets``.
        layout
            The layout of the nodes.
        relations
            The number of relations of the graph, or None.
        """
        body = FORMAT.load(folder)
        with FORMAT.reading(folder):
            edges, optional = int(body["edges"]), [str(name) for name in body["columns"]]
            sums = {name: int(value) for name, value in body["sums"].items()}
        names = ["heads", "tails", *(name for name in _OPTIONAL if name in optional)]
        arrays = {name: load_npy(folder / f"{name}.npy", remedy=_REMEDY) for name in names}
        path = folder / "offsets.npy"
        offsets = load_npy(path, remedy=_REMEDY)
        check_length(offsets, layout.partitions**2 + 1, path, remedy=_REMEDY)
        check_indptr(offsets, edges, path, remedy=_REMEDY)
        for name, array in arrays.items():
            stop = (relations or 1) if name == "relations" else max(layout.sizes)
            check_length(array, edges, folder / f"{name}.npy", remedy=_REMEDY)
            if name != "weights":
                check_indices(array, stop, folder / f"{name}.npy", remedy=_REMEDY)
            if (got := _sum(array)) != sums.get(name):
                raise CorruptFile(
                    f"{folder / name}.npy is damaged",
                    expected=f"values whose sum is {sums.get(name)}",
                    got=f"{got}",
                    remedy=_REMEDY,
                )
        return EdgeBuckets(
            arrays["heads"],
            arrays["tails"],
            arrays.get("relations"),
            np.array(offsets),
            arrays.get("weights"),
        )


@dataclass(frozen=True, eq=False)
class PhaseEdges:
    """The edges of one phase in a shuffled order; any batch can be read.

    Every batch is a sample of all buckets of the phase. Several threads may call ``batch``, also
    for the next batch while one is trained.
    """

    heads: Array
    tails: Array
    relations: Array | None
    weights: Array | None
    begins: Array
    offsets: Array
    head_rows: Array
    tail_rows: Array
    keys: Array
    dtype: np.dtype[Any]
    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, start: int, stop: int) -> BatchColumns:
        """Return the columns of edges ``start`` to ``stop``, nodes as rows."""
        size = max(0, min(stop, self.count) - start)
        heads, tails = np.empty(size, self.dtype), np.empty(size, self.dtype)
        relations = None if self.relations is None else np.empty(size, np.int32)
        weights = None if self.weights is None else np.empty(size, np.float32)
        mix_edges(
            self.heads,
            self.tails,
            self.relations,
            self.weights,
            self.begins,
            self.offsets,
            self.head_rows,
            self.tail_rows,
            self.keys,
            self.count,
            start,
            (heads, tails, relations, weights),
        )
        return heads, relations, tails, weights

    def batches(self, size: int) -> Iterator[BatchColumns]:
        """Yield batches of ``size`` edges; the last one may be smaller."""
        for start in range(0, self.count, size):
            yield self.batch(start, start + size)


def build_buckets(
    graph: Graph,
    layout: NodeLayout,
    folder: Path,
    *,
    seed: int = 0,
    weighted: bool = False,
    threads: int | None = None,
    sync: bool = False,
) -> EdgeBuckets:
    """Sort the edges of a graph into buckets, shuffle each, and return them mapped.

    Memory holds only the counts of each piece; edges go from mapped file to mapped file. The result
    does not depend on the number of threads.

    Parameters
    ----------
    graph
        Its stored edges are sorted; held-out edges are not among them.
    layout
        The layout of the nodes.
    folder
        The output. Existing buckets of the same graph, layout and seed are used again unless they
        are damaged.
    seed
        Determines the order in each bucket.
    weighted
        Whether edges have the graph's weights, divided by their mean.
    threads
        The number of threads that sort [default: all cores].
    sync
        Whether to flush them to the disk before this returns, for ranks on other hosts. This
        process need not wait: checksums find what a power failure damages.

    Raises
    ------
    CapacityError
        The disk has not enough space, or is full.
    InputError
        A weight is negative or not finite, or all are 0.
    """
    names = graph.manifest.relations
    relations = None if names is None else len(names)
    edges, buckets = graph.num_edges, layout.partitions**2
    groups = min(max(1, -(-edges // (GROUP * buckets))), _GROUPS)
    identity = {
        "graph": graph.digest,
        "starts": layout.starts.tolist(),
        "placed": None if layout.positions is None else _digest(layout.positions),
        "seed": seed,
        "groups": groups,
        "weighted": weighted,
    }
    with suppress(CorruptFile, MissingFile, TruncatedFile):  # they are made again from the graph
        if FORMAT.load(folder).get("of") == identity:
            return EdgeBuckets.open(folder, layout, relations)
    (folder / FORMAT.file).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    remove_temporaries(folder)  # left by a killed run: as large as the new ones
    dtype, typed = id_dtype(max(layout.sizes)), relations is not None
    kinds: dict[str, DTypeLike] = {"heads": dtype, "tails": dtype}
    kinds |= {"relations": np.int32} if typed else {}
    kinds |= {"weights": np.float32} if weighted else {}
    size = edges * (2 * dtype.itemsize + 4 * (len(kinds) - 2))
    need_disk(folder, size, f"the edge buckets of {graph.path}")
    pieces = list(row_pieces(graph))
    counts = np.zeros((len(pieces), buckets * groups), np.int64)
    firsts = np.cumsum([0, *(rows_of(graph, piece).edges for piece in pieces)])
    totals = np.zeros(len(pieces))  # of weights

    def count(number: int) -> None:
        piece = rows_of(graph, pieces[number])
        counts[number] = count_edges(
            piece.indptr,
            piece.indices,
            piece.first_row,
            layout.starts,
            layout.positions,
            groups,
            seed,
            int(firsts[number]),
        )
        if weighted:
            totals[number] = _total_weight(piece, graph)

    spread(count, range(len(pieces)), threads)
    scale = np.float32(_over_mean(float(totals.sum()), edges, graph) if weighted else 1)
    begins = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    at = begins[:-1] + np.cumsum(counts, axis=0) - counts
    with ExitStack() as stack:
        out = {
            name: _mapped(stack.enter_context(atomic(folder / f"{name}.npy")), edges, kind)
            for name, kind in kinds.items()
        }

        def scatter(number: int) -> None:
            piece = rows_of(graph, pieces[number])
            scatter_edges(
                piece.indptr,
                piece.indices,
                piece.relations,
                np.asarray(piece.weights, np.float32) * scale if weighted else None,
                piece.first_row,
                layout.starts,
                layout.positions,
                at[number],
                out["heads"],
                out["tails"],
                out.get("relations"),
                out.get("weights"),
                groups,
                seed,
                int(firsts[number]),
            )

        sums, lock = dict.fromkeys(out, 0), threading.Lock()

        def mix(group: int) -> None:
            a, b = int(begins[group]), int(begins[group + 1])
            ends = {name: array[a:b] for name, array in out.items()}
            optional = ends.get("relations"), ends.get("weights")
            shuffle(ends["heads"], ends["tails"], *optional, seed, a)
            found = {name: _sum(array) for name, array in ends.items()}
            with lock:
                for name, value in found.items():
                    sums[name] += value

        spread(scatter, range(len(pieces)), threads)
        spread(mix, range(buckets * groups), threads)
        for array in out.values():
            if sync and isinstance(array, np.memmap):
                array.flush()
    save_npy(folder, "offsets.npy", begins[::groups])
    columns = [name for name in _OPTIONAL if name in out]
    FORMAT.save(folder, {"edges": edges, "columns": columns, "of": identity, "sums": sums})
    for array in out.values():
        array.flags.writeable = False
    relations_of, weights_of = (out.get(name) for name in _OPTIONAL)
    return EdgeBuckets(
        out["heads"], out["tails"], relations_of, begins[::groups].copy(), weights_of
    )


def largest_bucket(graph: Graph, layout: NodeLayout, threads: int | None = None) -> int:
    """Return the number of edges of the largest bucket: one pass over the graph."""
    total, lock = np.zeros(layout.partitions**2, np.int64), threading.Lock()

    def count(piece: tuple[int, int, int]) -> None:
        rows = rows_of(graph, piece)
        found = count_edges(
            rows.indptr, rows.indices, rows.first_row, layout.starts, layout.positions
        )
        with lock:
            total[:] += found

    spread(count, row_pieces(graph), threads)
    return int(total.max(initial=0))


def row_pieces(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield (shard, first row, last row) of consecutive rows with about ``PIECE`` edges."""
    for number in range(graph.num_shards):
        shard = graph.shard(number)
        start = 0
        while start < shard.rows:
            wanted = int(shard.indptr[start]) + PIECE
            stop = int(np.searchsorted(shard.indptr, wanted, side="right")) - 1
            stop = min(max(stop, start + 1), shard.rows)
            yield number, start, stop
            start = stop


def rows_of(graph: Graph, piece: tuple[int, int, int]) -> CSR:
    """Return a range of rows, as ``row_pieces`` yields it."""
    shard, start, stop = piece
    return graph.shard(shard).row_range(start, stop)


def _mapped(path: Path, edges: int, dtype: DTypeLike) -> Array:
    if edges == 0:
        with path.open("wb") as file:
            np.save(file, np.empty(0, dtype))
        return np.empty(0, dtype)
    array: Array = np.lib.format.open_memmap(path, "w+", dtype, (edges,))
    # If the disk is full, a write to a mapped page ends the process: allocate all space before.
    fd = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(fd, 0, path.stat().st_size)
    finally:
        os.close(fd)
    return array


def _sum(array: Array) -> int:
    words = array.view(np.int32) if array.dtype == np.float32 else array
    return int(words.sum(dtype=np.int64))


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


def _over_mean(total: float, edges: int, graph: Graph) -> float:
    if total == 0:
        raise InputError(f"all edges of {graph.path} have weight 0", expected="a weight above 0")
    return edges / total


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()
