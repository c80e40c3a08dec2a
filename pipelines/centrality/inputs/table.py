"""Tables of edges: which graphs they hold, how these are cut into pieces, and how those are read.

Every chunk is surveyed first: only the column of graphs is read. So it is known where each graph
lies, also one whose rows lie apart, and what it costs. Then a piece reads its ranges of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError, UsageError
from penstock.kernels.centrality_rules import GraphBatch
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.chunks import (
    Chunk,
    Columns,
    Survey,
    file_metadata,
    first_line,
    read_columns,
    runs_of,
    survey_chunk,
    type_of,
)
from penstock.pipelines.centrality.inputs.runs import GRAPHS, Run, sort_chunk, write_run
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import (
    Piece,
    PieceSpec,
    costs_of,
    cut,
    without_bad_weights,
)
from penstock.pipelines.etl.reading.column_names import known_column
from penstock.pipelines.etl.reading.layout import KNOWN
from penstock.pipelines.job.partial import file_stamp

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.job import Workers
    from penstock.pipelines.job.partial import PartialOutput

_LEAST_COST = 2e9  # of a piece: below, reading it takes longer than computing it
_MOST_ROWS = 1 << 23  # of a chunk that is read as it lies
# Pieces read ranges of row groups, each from its beginning: so often at most, then they are sorted.
_READ_AGAIN = 4
_FEW_ROWS = 1 << 24


class TableInput(CentralityInput):
    """Tables of edges with a column of graphs, or text that becomes such."""

    def __init__(
        self, path: Path, kind: str, files: list[Path], options: CentralityOptions
    ) -> None:
        self.path, self.kind, self.files, self.options = path, kind, files, options
        self.failures: list[str] = []
        self.graphs, self.has_weights, self.directed = -1, True, bool(options.directed)
        self.stamps = {str(file): file_stamp(file) for file in self._all_files()}
        self.bytes = sum(size for size, *_ in self.stamps.values())
        self.chunks: list[Chunk] = []
        self.scratch_bytes = 0
        self.columns = Columns("graph", "source", "target", "weight", "int64", "int64")
        if kind == "parquet":
            self._open_parquet()
        else:
            self._refuse_columns()
            self.nodes = self.bytes // 16  # nodes have some edges each
            self.scratch_bytes = 5 * self.bytes  # numbers are longer than most are in text
        if kind == "tu":
            self.has_weights = False
        elif kind == "json":
            from penstock.pipelines.centrality.inputs.json_lines import first_direction

            if options.directed is None:
                self.directed = first_direction(files)

    def identity(self) -> dict[str, Any]:
        """Return the files as they are now."""
        return {"graphs": str(self.path), "inputs": self.stamps}

    def about(self) -> dict[str, Any]:
        """Return what centrality.json says of it."""
        return {"graphs_of": str(self.path), "format": self.kind, "directed": self.directed}

    def check_unchanged(self) -> None:
        """Raise InputError where a file is not what it was when the run began."""
        for path, stamp in self.stamps.items():
            if not Path(path).exists() or file_stamp(path) != stamp:
                raise InputError(
                    f"{path} changed while it was read", remedy="Run again once nobody writes it"
                )

    def prepare(self, workers: Workers, output: PartialOutput) -> list[PieceSpec]:
        """Survey all chunks, and cut their graphs into pieces."""
        failed: list[tuple[Any, str]] = []
        if self.kind != "parquet":
            failed = self._parse(workers, output.scratch)
        calls = [(chunk, self.columns) for chunk in self.chunks]
        rows = [chunk.rows for chunk in self.chunks]
        surveys = workers.tasks("survey", survey_chunk, calls, rows, "edges")
        if self.chunks and all(one.problem for one in surveys):
            raise InputError(f"{self.path} cannot be read", got=surveys[0].problem)
        found = Layout.of(self.chunks, surveys, self.columns)
        self.graphs = len(found.ids)
        self.failures += found.lost(self.columns)
        doubtful = found.doubtful(self.columns)
        pieces = found.pieces(distances=self.options.distances)
        reads = found.reads(pieces)
        if found.apart(reads, pieces):
            found, reads = self._sorted(workers, output.scratch, found, pieces)
        doubtful |= found.numbers(failed)
        return [
            TablePiece(
                ids=found.ids.take(as_arrow(np.arange(first, stop))),
                items=4 * int(found.rows[first:stop].sum()) + (stop - first),
                cost=float(found.costs[first:stop].sum()),
                large=large,
                reads=tuple(reads[piece]),
                columns=self.columns,
                directed=self.directed,
                doubtful={n - first: doubtful[n] for n in sorted(doubtful) if first <= n < stop},
            )
            for piece, (first, stop, large) in enumerate(pieces)
        ]

    def _all_files(self) -> list[Path]:
        if self.kind != "tu":
            return self.files
        from penstock.pipelines.etl.zoos.tu_files import find_tu_files

        return [Path(file) for file in find_tu_files(str(self.path)).values()]

    def _refuse_columns(self) -> None:
        names = ["graph_id", "source", "target"] + ["weight"] * (self.kind != "json")
        given = [name for name in names if getattr(self.options, name) is not None]
        if given:
            raise UsageError(
                f"--{given[0].replace('_', '-')} is for Parquet files", got=f"{self.path}"
            )

    def _open_parquet(self) -> None:
        """Find the columns and the row groups; a file that cannot be opened is a failure."""
        import pyarrow as pa

        seen: dict[str, Columns] = {}
        for file in self.files:
            try:
                metadata = file_metadata(str(file))
                schema = metadata.schema.to_arrow_schema()
            except (OSError, pa.ArrowException) as error:
                self.failures.append(f"{file} cannot be read: {first_line(error)}")
                continue
            seen[str(file)] = self._columns(schema, str(file))
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                self.chunks += [Chunk(str(file), group, rows)] if rows else []
        if not seen:
            raise InputError(f"{self.path} cannot be read", got=self.failures[0])
        first_path, self.columns = next(iter(seen.items()))
        for path, columns in seen.items():
            if columns != self.columns:
                raise InputError(
                    f"{path} has other columns than {first_path}",
                    expected=str(self.columns), got=str(columns),
                    remedy="Write all files with the same names and types",
                )  # fmt: skip
        self.has_weights = self.columns.weight is not None
        if not self.options.weighted:
            self.columns = replace(self.columns, weight=None)
        self.nodes = sum(chunk.rows for chunk in self.chunks) // 2  # nodes have some edges each

    def _columns(self, schema: Any, path: str) -> Columns:
        found: dict[str, str | None] = {}
        for role, option in (
            ("graph", "graph_id"), ("source", "source"), ("target", "target"), ("weight", "weight"),
        ):  # fmt: skip
            asked = getattr(self.options, option)
            names = KNOWN[role]
            flag = f"--{option.replace('_', '-')}"
            if asked is not None:
                if asked not in schema.names:
                    raise UsageError(
                        f"{path} has no column {asked!r}, which {flag} names",
                        expected=f"one of {', '.join(schema.names[:20])}",
                    )
                found[role] = asked
                continue
            at = known_column(schema.names, names, role, path, flag)
            found[role] = None if at is None else schema.names[at]
            if at is None and role != "weight":
                raise UsageError(
                    f"{path} has no column of the {role}s that is known by its name",
                    expected=f"{' or '.join(names)}, or {flag} COLUMN",
                    got=f"columns {', '.join(schema.names[:20])}",
                )
        graph, source, target = (str(found[role]) for role in ("graph", "source", "target"))
        kinds = {name: type_of(schema.field(name).type, path, name) for name in (source, target)}
        if len(set(kinds.values())) > 1:
            raise InputError(f"{path} has ids of two types", got=str(kinds))
        if (weight := found["weight"]) is not None:
            kind = schema.field(weight).type
            import pyarrow as pa

            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise InputError(
                    f"the column {weight} of {path} holds no weights",
                    expected="numbers", got=str(kind),
                )  # fmt: skip
        graph_type = type_of(schema.field(graph).type, path, graph)
        return Columns(graph, source, target, weight, graph_type, kinds[source])

    def _parse(self, workers: Workers, scratch: Path) -> list[tuple[Any, str]]:
        """Make runs of text, and return the graphs that cannot be computed, with the reasons."""
        from penstock.pipelines.centrality.inputs import edge_lists, json_lines, tu

        parser: Any = {"tu": tu, "edgelists": edge_lists, "json": json_lines}[self.kind]
        calls, sizes = [], []
        for number, (what, size) in enumerate(parser.parts(self.path, self.files)):
            name = f"text-{number:05d}"
            calls.append((what, scratch, name, self.directed, self.options))
            sizes.append(size)
        runs: list[Run] = workers.tasks("read", parser.parse, calls, sizes, "B")
        self.chunks = [run.chunk for run in runs]
        kinds = {}
        for name in ("graph_type", "node_type"):
            several = {getattr(run, name) for run in runs} - {""}
            kinds[name] = "string" if "string" in several else "int64"
        weight = "weight" if self.options.weighted else None
        self.columns = Columns("graph", "source", "target", weight, **kinds)
        self.failures += [reason for run in runs for reason in run.lost]
        return [each for run in runs for each in run.failed]

    def _sorted(
        self, workers: Workers, scratch: Path, found: Layout, pieces: list[tuple[int, int, bool]]
    ) -> tuple[Layout, list[list[Read]]]:
        """Sort the rows of every chunk by graph: then a piece is a range of rows of each."""
        import pyarrow as pa

        write_run(scratch, GRAPHS.removesuffix(".arrow"), pa.table({"id": found.ids}))
        whole = [n for n, one in enumerate(found.surveys) if one.problem is None]
        calls = [(found.chunks[n], self.columns, scratch, n) for n in whole]
        sizes = [found.chunks[n].rows for n in whole]
        made = workers.tasks("sort", sort_chunk, calls, sizes, "edges")
        runs = [each for several in made for each in several]
        again = Layout.of([run for run, _ in runs], [one for _, one in runs], self.columns, found)
        return again, again.reads(pieces)


@dataclass(frozen=True, eq=False)
class Read:
    """A range of rows of a chunk.

    graphs, counts  the numbers in the piece of the graphs that these rows are, and how many rows
                    each has; None: there may be rows of other pieces between
    """

    chunk: Chunk
    low: int
    high: int
    graphs: Array | None
    counts: Array | None


@dataclass(frozen=True, eq=False)
class Layout:
    """Which graphs lie where: an entry for every chunk and graph in it.

    ids     (graphs,) in the order of their first rows; rows: (graphs,) of each
    graph, chunk, low, high   (entries,) int64: the rows of a graph in a chunk, or all of that chunk
    """

    chunks: list[Chunk]
    surveys: list[Survey]
    ids: pa.Array
    rows: Array
    graph: Array
    chunk: Array
    low: Array
    high: Array
    counts: Array

    @staticmethod
    def of(
        chunks: list[Chunk], surveys: list[Survey], columns: Columns, like: Layout | None = None
    ) -> Layout:
        """Number the graphs of all chunks, as ``like`` does where that is given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string()}
        parts = [one.ids.cast(kind[columns.graph_type]) for one in surveys]
        named = pa.chunked_array(parts, kind[columns.graph_type])
        if like is None:
            ids = named.unique()
            ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        else:
            ids = like.ids
        graph = as_numpy(pc.index_in(named, value_set=ids)).astype(np.int64)
        lengths = [len(one.ids) for one in surveys]
        chunk = np.repeat(np.arange(len(surveys)), lengths)
        counts = np.concatenate([np.empty(0, np.int64), *(one.counts for one in surveys)])
        ends = np.cumsum(counts)
        before = np.concatenate([[0], np.cumsum([int(one.counts.sum()) for one in surveys])])
        high = ends - before[chunk]
        low = high - counts
        ordered = np.array([one.ordered for one in surveys], bool)[chunk]
        whole = np.array([one.rows for one in chunks], np.int64)[chunk]
        low, high = np.where(ordered, low, 0), np.where(ordered, high, whole)
        rows = np.bincount(graph, weights=counts, minlength=len(ids)).astype(np.int64)
        return Layout(chunks, surveys, ids, rows, graph, chunk, low, high, counts)

    def numbers(self, failed: list[tuple[Any, str]]) -> dict[int, str]:
        """Return reasons by the number of the graph instead of its id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pa.array([str(graph) for graph, _ in failed], pa.string())
        places = as_numpy(pc.index_in(words, value_set=self.ids.cast(pa.string()))).tolist()
        return {n: reason for n, (_, reason) in zip(places, failed, strict=True)}

    @property
    def costs(self) -> Array:
        """What all shortest paths of each graph cost, guessed from its edges alone."""
        return costs_of(self.rows // 4 + 1, 2 * self.rows)

    def pieces(self, *, distances: bool) -> list[tuple[int, int, bool]]:
        """Cut the graphs, in their order, into pieces that begin where chunks do, if they can."""
        first = np.full(len(self.ids), len(self.chunks), np.int64)
        np.minimum.at(first, self.graph, self.chunk)
        items = 3 * self.rows
        if distances:
            items = items + self.rows**2 // 32
        return cut(self.costs, items, aligned=first, least_cost=_LEAST_COST)

    def reads(self, pieces: list[tuple[int, int, bool]]) -> list[list[Read]]:
        """Return what each piece reads: a range of rows of every chunk that has some of it."""
        stops = np.array([stop for _, stop, _ in pieces], np.int64)
        piece = np.searchsorted(stops, self.graph, side="right")
        key = piece * max(len(self.chunks), 1) + self.chunk
        order = np.argsort(key, kind="stable")
        found: list[list[Read]] = [[] for _ in pieces]
        if not len(order):
            return found
        starts = np.concatenate([[0], np.flatnonzero(np.diff(key[order])) + 1])
        low = np.minimum.reduceat(self.low[order], starts)
        high = np.maximum.reduceat(self.high[order], starts)
        count = np.add.reduceat(self.counts[order], starts)
        firsts = np.array([first for first, *_ in pieces], np.int64)
        ends = np.append(starts[1:], len(order))
        for i, entry in enumerate(order[starts]):
            number, mine = int(self.chunk[entry]), int(piece[entry])
            graphs = lengths = None
            if self.surveys[number].ordered and high[i] - low[i] == count[i]:
                entries = order[starts[i] : ends[i]]
                graphs, lengths = self.graph[entries] - firsts[mine], self.counts[entries]
            read = Read(self.chunks[number], int(low[i]), int(high[i]), graphs, lengths)
            found[mine].append(read)
        return found

    def apart(self, reads: list[list[Read]], pieces: list[tuple[int, int, bool]]) -> bool:
        """Return whether graphs lie so far apart that rows would be read again and again."""
        total = sum(chunk.rows for chunk in self.chunks)
        decoded = sum(
            one.high if one.chunk.group >= 0 else one.high - one.low
            for each in reads
            for one in each
        )
        most = max((one.high - one.low for each in reads for one in each), default=0)
        return decoded > _READ_AGAIN * total + _FEW_ROWS or most > _MOST_ROWS

    def lost(self, columns: Columns) -> list[str]:
        """Return what cannot be read and belongs to no graph that is known."""
        found = []
        for chunk, one in zip(self.chunks, self.surveys, strict=True):
            if one.problem is not None:
                found.append(f"{chunk.where} ({chunk.rows} rows) cannot be read: {one.problem}")
            if one.nulls:
                found.append(f"{chunk.where}: {one.nulls} rows without {columns.graph}")
        return found

    def doubtful(self, columns: Columns) -> dict[int, str]:
        """Return the graphs that may have rows in chunks which cannot be read, and the reason.

        By the statistics of these; where there are none, those of the chunks beside them.
        """
        found: dict[int, str] = {}
        bad = [n for n, one in enumerate(self.surveys) if one.problem is not None]
        together = all(one.ordered or one.problem for one in self.surveys)
        for n in bad:
            reason = f"some of its rows may lie in {self.chunks[n].where}, which cannot be read"
            inside = self._within_statistics(self.chunks[n], columns)
            beside = np.zeros(len(self.ids), bool)
            if n > 0 and len(mine := self.graph[self.chunk == n - 1]):
                beside[mine[-1]] = True
            if n + 1 < len(self.chunks) and len(mine := self.graph[self.chunk == n + 1]):
                beside[mine[0]] = True
            if inside is not None and not together:
                beside[:] = True
            if inside is not None:
                beside &= inside
            found |= dict.fromkeys(np.flatnonzero(beside).tolist(), reason)
        return found

    def _within_statistics(self, chunk: Chunk, columns: Columns) -> Array | None:
        import pyarrow.compute as pc

        if chunk.group < 0:
            return None
        group = file_metadata(chunk.path).row_group(chunk.group)
        for i in range(group.num_columns):
            column = group.column(i)
            if column.path_in_schema != columns.graph:
                continue
            if not column.is_stats_set or not column.statistics.has_min_max:
                return None
            low, high = column.statistics.min, column.statistics.max
            inside = pc.and_(pc.greater_equal(self.ids, low), pc.less_equal(self.ids, high))
            return np.asarray(inside)
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class TablePiece(PieceSpec):
    """Some graphs of tables of edges.

    doubtful  graphs, by number, that cannot be computed, and why
    """

    reads: tuple[Read, ...]
    columns: Columns
    directed: bool
    doubtful: dict[int, str] = field(default_factory=dict)

    def read(self, *, weighted: bool) -> Piece:
        """Read the ranges of rows, and number the nodes of each graph."""
        from penstock.kernels.cpu.small_graphs import number_nodes, rows_of_edges

        tables, failed = self._tables()
        unread = set(failed)
        failed = {**self.doubtful, **failed}
        numbers = np.concatenate([np.empty(0, np.int64), *(one for one, _ in tables)])
        names = self.columns
        sources, targets, flags, known = _ends(
            [table for _, table in tables], names.source, names.target
        )
        weights = None
        if weighted:
            weights = np.ones(len(numbers))
            if names.weight is not None and len(numbers):
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
        starts = np.searchsorted(numbers, np.arange(self.graphs + 1))
        if weights is not None:
            weights[flags != 0] = 1  # of a row without an edge it means nothing
            weights, wrong = without_bad_weights(weights, starts)
            failed = {**wrong, **failed}
        ids, ptr, us, vs = number_nodes(starts, sources, targets, flags)
        indptr, indices, lengths = rows_of_edges(
            starts, ptr, us, vs, weights, directed=self.directed
        )
        batch = GraphBatch(ptr, indptr, indices, lengths, directed=self.directed)
        nodes: Any = as_arrow(ids)
        if known is not None:
            nodes = known.take(nodes)
        elif names.node_type == "uint64":
            nodes = as_arrow(ids.view(np.uint64))
        return Piece(batch, failed, self.ids, nodes, frozenset(unread | set(self.doubtful)))

    def _tables(self) -> tuple[list[tuple[Array, dict[str, Any]]], dict[int, str]]:
        """Return the rows, with the number of the graph of each, and why graphs cannot be read."""
        import pyarrow as pa

        found: list[tuple[Array, dict[str, Any]]] = []
        failed: dict[int, str] = {}
        names = self.columns.names()
        for read in self.reads:
            try:
                if read.graphs is not None:
                    table = read_columns(read.chunk, self.columns, names[1:], read.low, read.high)
                    found.append((np.repeat(read.graphs, read.counts), table))
                    continue
                table = read_columns(read.chunk, self.columns, names, read.low, read.high)
                numbers = self._numbers(table.pop(self.columns.graph))
                if not (mine := numbers >= 0).all():  # among rows of other pieces
                    numbers, chosen = numbers[mine], pa.array(mine)
                    table = {name: column.filter(chosen) for name, column in table.items()}
                found.append((numbers, table))
            except (OSError, pa.ArrowException) as error:
                reason = f"{read.chunk.where} cannot be read: {first_line(error)}"
                failed |= dict.fromkeys(self._graphs_in(read).tolist(), reason)
        return found, failed

    def _graphs_in(self, read: Read) -> Array:
        """Return the numbers of the graphs of which there are rows."""
        if read.graphs is not None:
            return read.graphs
        only = [self.columns.graph]
        column = read_columns(read.chunk, self.columns, only, read.low, read.high)
        there = np.unique(self._numbers(column[self.columns.graph]))
        return there[there >= 0]

    def _numbers(self, column: pa.ChunkedArray) -> Array:
        """Return the number in this piece of the graph of each row; -1: none of it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.ids is not None
        if pa.types.is_dictionary(column.type):
            parts = []
            for chunk in column.chunks:
                place = pc.index_in(chunk.dictionary.cast(self.ids.type), value_set=self.ids)
                of_word = as_numpy(place, -1).astype(np.int64)
                of_word = np.append(of_word, -1)  # of no word
                parts.append(of_word[as_numpy(chunk.indices, -1)])
            return np.concatenate([np.empty(0, np.int64), *parts])
        if column.null_count:
            place = pc.index_in(column.cast(self.ids.type), value_set=self.ids, skip_nulls=True)
            return as_numpy(place, -1).astype(np.int64)
        values = as_numpy(column)
        at, lengths = runs_of(values)
        place = pc.index_in(as_arrow(values[at]).cast(self.ids.type), value_set=self.ids)
        return np.repeat(as_numpy(place, -1).astype(np.int64), lengths)


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
            ends.append(
                values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
            )
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
    return as_numpy(column.cast("float64"), np.nan).astype(np.float64)
