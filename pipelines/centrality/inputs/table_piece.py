"""A piece of tables of edges: ranges of rows are read, nodes are numbered graph by graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.files import save_npy
from penstock.graph import load_npy
from penstock.kernels.centrality_rules import GraphBatch
from penstock.pipelines.centrality.inputs.chunks import (
    ColumnNames,
    decoded,
    read_columns,
    run_lengths,
)
from penstock.pipelines.centrality.inputs.ipc_files import read_ids, write_ipc
from penstock.pipelines.centrality.inputs.layout import Read
from penstock.pipelines.centrality.pieces import (
    ARRAYS,
    Piece,
    PieceSpec,
    without_bad_weights,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, kw_only=True)
class TablePiece(PieceSpec):
    """Some graphs of tables of edges.

    added     whether parallel edges are added up, too
    doubtful  graphs, by number, that cannot be computed, and why
    """

    reads: tuple[Read, ...]
    columns: ColumnNames
    directed: bool
    added: bool
    doubtful: dict[int, str] = field(default_factory=dict)

    def read(self, *, weighted: bool) -> Piece:
        """Read the ranges of rows, and number the nodes of each graph."""
        from penstock.kernels.cpu.small_graphs import number_nodes, rows_of_edges, sums_of_edges

        tables, failed = self._tables(), self.doubtful
        runs = None if failed else _one_after_another([rows for rows, _ in tables], self.graphs)
        numbers = np.empty(0, np.int64)
        if runs is None:
            numbers = np.concatenate([numbers, *(rows.numbers() for rows, _ in tables)])
        names = self.columns
        sources, targets, flags, known = _ends(
            [table for _, table in tables], names.source, names.target
        )
        weights = None
        if weighted:
            weights = np.ones(len(sources))
            if names.weight is not None and len(sources):
                parts = [_floats(table[names.weight]) for _, table in tables]
                weights = np.concatenate(parts)
        if failed:
            keep = ~np.isin(numbers, list(failed))
            numbers, sources, targets = numbers[keep], sources[keep], targets[keep]
            flags = flags[keep]
            weights = None if weights is None else weights[keep]
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            numbers, sources, targets = numbers[order], sources[order], targets[order]
            flags = flags[order]
            weights = None if weights is None else weights[order]
        starts = runs
        if starts is None:
            starts = np.searchsorted(numbers, np.arange(self.graphs + 1))
        if weights is not None:
            weights[flags != 0] = 1  # of a row without an edge it means nothing
            weights, wrong = without_bad_weights(weights, starts)
            failed = {**wrong, **failed}
        ids, ptr, us, vs = number_nodes(starts, sources, targets, flags)
        indptr, indices, lengths = rows_of_edges(
            starts, ptr, us, vs, weights, directed=self.directed
        )
        sums = None
        if self.added and len(indices) < _listed(us, vs, directed=self.directed):
            sums = sums_of_edges(
                starts, ptr, us, vs, weights, indptr, indices, directed=self.directed
            )
        batch = GraphBatch(ptr, indptr, indices, lengths, directed=self.directed, sums=sums)
        nodes = decoded(ids, known, names.node_type)
        return Piece(batch, failed, self.ids, nodes, frozenset(self.doubtful))

    def keep(self, piece: Piece, folder: Path, stem: str) -> KeptPiece:
        """Write the graph as it was read."""
        import pyarrow as pa

        for name in ARRAYS:
            if (array := getattr(piece.batch, name)) is not None:
                save_npy(folder, f"{stem}-{name}.npy", array)
        write_ipc(folder, f"{stem}-nodes", pa.table({"id": piece.nodes}))
        return KeptPiece(
            ids=self.ids, items=self.items, cost=self.cost, matrix=piece.batch.nodes**2, large=True,
            folder=folder, stem=stem, directed=piece.batch.directed, failed=piece.failed,
            unread=piece.unread, added=piece.batch.sums is not None,
        )  # fmt: skip

    def _tables(self) -> list[tuple[_Runs, dict[str, Any]]]:
        """Return the rows, with the graphs that they are of."""
        import pyarrow as pa

        found: list[tuple[_Runs, dict[str, Any]]] = []
        names = self.columns.names()
        for read in self.reads:
            if read.graphs is not None and read.counts is not None:
                table = read_columns(read.chunk, self.columns, names[1:], read.low, read.high)
                found.append((_Runs(read.graphs, read.counts), table))
                continue
            table = read_columns(read.chunk, self.columns, names, read.low, read.high)
            numbers = self._numbers(table.pop(self.columns.graph))
            if not (mine := numbers >= 0).all():  # among rows of other pieces
                numbers, chosen = numbers[mine], pa.array(mine)
                table = {name: column.filter(chosen) for name, column in table.items()}
            found.append((_Runs(numbers, None), table))
        return found

    def _numbers(self, column: pa.ChunkedArray) -> Array:
        """Return the number in this piece of the graph of each row; -1: none of it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.ids is not None
        if pa.types.is_dictionary(column.type):
            parts = []
            for chunk in column.chunks:
                position = pc.index_in(chunk.dictionary.cast(self.ids.type), value_set=self.ids)
                of_word = as_numpy(position, -1).astype(np.int64)
                parts.append(of_word[as_numpy(chunk.indices)])
            return np.concatenate([np.empty(0, np.int64), *parts])
        values = as_numpy(column)
        at, lengths = run_lengths(values)
        position = pc.index_in(as_arrow(values[at]).cast(self.ids.type), value_set=self.ids)
        return np.repeat(as_numpy(position, -1).astype(np.int64), lengths)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptPiece(PieceSpec):
    """A large graph that was read from tables, as it was kept: .npy files of this stem."""

    folder: Path
    stem: str
    directed: bool
    added: bool
    failed: dict[int, str]
    unread: frozenset[int]

    def read(self, *, weighted: bool) -> Piece:
        """Map it."""
        there = {"weights": weighted, "sums": self.added}
        names = [name for name in ARRAYS if there.get(name, True)]
        arrays = {name: load_npy(self.folder / f"{self.stem}-{name}.npy") for name in names}
        batch = GraphBatch(**arrays, directed=self.directed)
        nodes = read_ids(str(self.folder / f"{self.stem}-nodes.arrow"))
        return Piece(batch, self.failed, self.ids, nodes, self.unread)


@dataclass(frozen=True, eq=False)
class _Runs:
    """The number of the graph of each row: of so many rows each, or, without counts, of one."""

    graphs: Array
    counts: Array | None

    def numbers(self) -> Array:
        """Return a number a row."""
        return self.graphs if self.counts is None else np.repeat(self.graphs, self.counts)


def _one_after_another(several: list[_Runs], graphs: int) -> Array | None:
    """Return where the rows of each graph begin, and end; None where they may be out of order.

    Most tables lie in order. A number a row, to see that, would be as large as a column.
    """
    counts = [runs.counts for runs in several]
    if any(each is None for each in counts):
        return None
    none = np.empty(0, np.int64)
    of = np.concatenate([none, *(runs.graphs for runs in several)])
    if (of[1:] < of[:-1]).any():
        return None
    rows = np.zeros(graphs + 1, np.int64)
    np.add.at(rows, of + 1, np.concatenate([none, *(each for each in counts if each is not None)]))
    return np.cumsum(rows)


def _listed(us: Array, vs: Array, *, directed: bool) -> int:
    """Return how many edges rows list, each way of an undirected one."""
    there = (us >= 0) & (vs >= 0)
    rows = int(np.count_nonzero(there))
    return rows if directed else 2 * rows - int(np.count_nonzero(there & (us == vs)))


def _ends(
    tables: list[dict[str, Any]], source: str, target: str
) -> tuple[Array, Array, Array, pa.Array | None]:
    """Return the ends of all rows as int64, what is missing, and the words that they number.

    Numbers of words ascend as the words do.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.kernels.cpu.small_graphs import NO_SOURCE, NO_TARGET

    if not tables:
        none = np.empty(0, np.int64)
        return none, none, np.empty(0, np.uint8), None
    chunks = [
        [chunk for table in tables for chunk in table[name].chunks] for name in (source, target)
    ]
    both = [pa.chunked_array(each, tables[0][source].type) for each in chunks]
    rows = len(both[0])
    flags = np.zeros(rows, np.uint8)
    for column, flag in zip(both, (NO_SOURCE, NO_TARGET), strict=True):
        if column.null_count:
            flags[~np.asarray(column.is_valid())] |= flag
    if not pa.types.is_dictionary(both[0].type):
        ends = []
        for column in both:
            values = as_numpy(column, 0)
            signed = values.dtype == np.uint64
            ends.append(values.view(np.int64) if signed else values.astype(np.int64, copy=False))
        return ends[0], ends[1], flags, None
    together = pa.chunked_array(chunks[0] + chunks[1], both[0].type).unify_dictionaries()
    words = together.chunk(0).dictionary if together.num_chunks else pa.array([], pa.string())
    order = as_numpy(pc.sort_indices(words)).astype(np.int64)
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    rank[-1] = 0  # of what is missing
    codes = [as_numpy(chunk.indices, -1) for chunk in together.chunks]
    joined = rank[np.concatenate([np.empty(0, np.int64), *codes]).astype(np.int64)]
    return joined[:rows], joined[rows:], flags, words.take(as_arrow(order))


def _floats(column: pa.ChunkedArray) -> Array:
    """Return weights; one that is missing is no number."""
    # Integers beyond 2**53 are rounded, as a cast that is safe would not.
    return as_numpy(column.cast("float64", safe=False), np.nan).astype(np.float64)
