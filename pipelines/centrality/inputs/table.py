"""Tables of edges as an input: their columns, their chunks, and from these to pieces.

Every chunk is surveyed first: only the column of graphs is read. So it is known where each graph
lies, also one whose rows lie apart, and what it costs. Then a piece reads its ranges of rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow
from penstock.errors import CapacityError, InputError, UsageError
from penstock.options import flag
from penstock.output import file_stamp
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.chunks import (
    Chunk,
    ColumnNames,
    ipc_chunks,
    parquet_chunks,
    survey_chunks,
    type_of,
)
from penstock.pipelines.centrality.inputs.ipc_files import (
    GRAPHS,
    SAME_ID,
    Parsed,
    sort_chunk,
    write_ipc,
)
from penstock.pipelines.centrality.inputs.layout import GraphIndex, Read
from penstock.pipelines.centrality.inputs.table_piece import TablePiece
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec
from penstock.pipelines.etl.reading.layout import KNOWN
from penstock.pipelines.tables.names import known_column
from penstock.pipelines.tables.parquet import naming
from penstock.sizes import need_disk

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

# Graphs that surveys list for this process, counted in each chunk: some GB. What is in order is no
# more than there are graphs.
_LISTED, _LISTED_OF_CHUNK = 1 << 26, 1 << 12
_TABLES = ("parquet", "arrow")  # other kinds are text
_SURVEYS_OF_WORKER = 8  # tasks of a core, at least, where there are so many chunks


class TableInput(CentralityInput):
    """Tables of edges with a column of graphs, or text that becomes such."""

    def __init__(
        self, path: Path, kind: str, files: list[Path], options: CentralityOptions
    ) -> None:
        self.path, self.kind, self.files, self.options = path, kind, files, options
        self.searched = [str(path)]
        self.failures: list[str] = []
        self.has_weights, self.directed = True, bool(options.directed)
        self.bytes = sum(file.stat().st_size for file in files)
        self.chunks: list[Chunk] = []
        self.columns = ColumnNames("graph", "source", "target", "weight", "int64", "int64")
        if kind in _TABLES:
            self._open_tables()
        else:
            self.nodes = self.bytes // 16  # nodes have some edges each
            self.scratch_bytes = 5 * self.bytes  # numbers are longer than most are in text
        if kind == "tu":
            self.has_weights = False
        elif kind == "json":
            from penstock.pipelines.centrality.inputs.json_lines import first_direction

            if options.directed is None:
                self.directed = first_direction(files)

    def stamps(self) -> dict[str, Any]:
        """Return those of the files that are there."""
        return {str(file): file_stamp(file) for file in self.files if file.exists()}

    def about(self) -> dict[str, Any]:
        """Return what centrality.json says of it."""
        return {"input": str(self.path), "input_format": self.kind, "directed": self.directed}

    def prepare(self, workers: Workers, output: Output) -> list[PieceSpec]:
        """Survey all chunks, and cut their graphs into pieces."""
        failed: list[tuple[Any, str]] = []
        if self.kind not in _TABLES:
            failed = self._parse(workers, output.scratch)
        most = max(_LISTED // max(len(self.chunks), 1), _LISTED_OF_CHUNK)
        # A chunk takes milliseconds, and so does a task that begins.
        size = max(len(self.chunks) // (_SURVEYS_OF_WORKER * workers.task_capacity.tasks), 1)
        several = [self.chunks[n : n + size] for n in range(0, len(self.chunks), size)]
        calls = [(each, self.columns, most) for each in several]
        rows = [sum(chunk.rows for chunk in each) for each in several]
        surveyed = workers.tasks("survey", survey_chunks, calls, rows, "edges")
        surveys = [one for each in surveyed for one in each]
        if any(one.too_many for one in surveys):
            raise CapacityError(
                f"the rows of {self.path} are too mixed: too many row groups have some of too "
                "many graphs",
                expected=f"{_LISTED:,} graphs at most, counted again in every row group",
                remedy="Sort the rows by graph, or take penstock etl --format zoo, which reads "
                "them in any order, and give its output to centrality",
            )
        found = GraphIndex.of(self.chunks, surveys, self.columns)
        self.graphs = len(found.ids)
        if not len(found.ids) and self.failures:
            raise InputError(f"there is no graph in {self.path}", got=self.failures[0])
        doubtful = found.numbers(failed)
        pieces = found.pieces(distances=self.options.distances)
        reads, costs = found.reads(pieces), found.costs
        if found.apart(reads):
            reads = self._sorted(workers, output.scratch, found, pieces)
        if self.kind in ("json", "edgelists"):  # a graph is in one line, or in one file
            doubtful |= dict.fromkeys(found.in_several_chunks(), SAME_ID)
        return [
            TablePiece(
                ids=found.ids.take(as_arrow(np.arange(first, stop))),
                items=4 * int(found.rows[first:stop].sum()) + (stop - first),
                cost=float(costs[first:stop].sum()),
                large=large,
                reads=tuple(reads[piece]),
                columns=self.columns,
                directed=self.directed,
                # A TU folder lists the entries of a matrix, an edge once or in both directions.
                added="pagerank" in self.options.wanted and self.kind != "tu",
                doubtful={n - first: doubtful[n] for n in sorted(doubtful) if first <= n < stop},
            )
            for piece, (first, stop, large) in enumerate(pieces)
        ]

    def _open_tables(self) -> None:
        """Find the columns, and the row groups or batches."""
        seen: dict[str, ColumnNames] = {}
        for path in map(str, self.files):
            with naming(path, self.kind, "not what its name says"):
                schema, chunks = (ipc_chunks if self.kind == "arrow" else parquet_chunks)(path)
            columns = self._columns(schema, path)
            if not self.options.weighted:
                columns = replace(columns, weight=None)
            seen[path] = columns
            self.has_weights &= columns.weight is not None
            self.chunks += [chunk for chunk in chunks if chunk.rows]
        first_path, self.columns = next(iter(seen.items()))
        for path, columns in seen.items():
            if columns != self.columns:
                raise InputError(
                    f"{path} has other columns than {first_path}",
                    expected=str(self.columns), got=str(columns),
                    remedy="Write all files with the same names and types",
                )  # fmt: skip
        self.nodes = sum(chunk.rows for chunk in self.chunks) // 2  # nodes have some edges each

    def _columns(self, schema: Any, path: str) -> ColumnNames:
        found: dict[str, str | None] = {}
        for role, option in (
            ("graph", "graph_id"), ("source", "source"), ("target", "target"), ("weight", "weight"),
        ):  # fmt: skip
            asked = getattr(self.options, option)
            names = KNOWN[role]
            if asked is not None:
                if asked not in schema.names:
                    raise UsageError(
                        f"{path} has no column {asked!r}, which {flag(option)} names",
                        expected=f"one of {', '.join(schema.names[:20])}",
                    )
                found[role] = asked
                continue
            at = known_column(schema.names, names, role, path, flag(option))
            found[role] = None if at is None else schema.names[at]
            if at is None and role != "weight":
                raise UsageError(
                    f"{path} has no column of the {role}s that is known by its name",
                    expected=f"{' or '.join(names)}, or {flag(option)} COLUMN",
                    got=f"columns {', '.join(schema.names[:20])}",
                )
        taken = [name for name in found.values() if name is not None]
        if twice := sorted({name for name in taken if taken.count(name) > 1}):
            roles = [role for role, name in found.items() if name == twice[0]]
            raise UsageError(
                f"the column {twice[0]!r} of {path} cannot be {' and '.join(roles)} at once",
                remedy="Name the others with --graph-id, --source, --target and --weight",
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
        return ColumnNames(graph, source, target, weight, graph_type, kinds[source])

    def _parse(self, workers: Workers, scratch: Path) -> list[tuple[Any, str]]:
        """Make IPC files of text, and return the graphs that cannot be computed, and why."""
        from penstock.pipelines.centrality.inputs import edge_lists, json_lines, tu

        parser: Any = {"tu": tu, "edgelists": edge_lists, "json": json_lines}[self.kind]
        calls, sizes = [], []
        for number, (what, size) in enumerate(parser.parts(self.path, self.files)):
            name = f"text-{number:05d}"
            calls.append((what, scratch, name, self.directed, self.options))
            sizes.append(size)
        parsed: list[Parsed] = workers.tasks("read", parser.parse, calls, sizes, "B")
        self.chunks = [one.chunk for one in parsed]
        kinds = {}
        for name in ("graph_type", "node_type"):
            several = {getattr(one, name) for one in parsed} - {""}
            kinds[name] = "string" if "string" in several else "int64"
        weight = "weight" if self.options.weighted else None
        self.columns = ColumnNames("graph", "source", "target", weight, **kinds)
        self.failures += [reason for one in parsed for reason in one.lost]
        return [each for one in parsed for each in one.failed]

    def _sorted(
        self,
        workers: Workers,
        scratch: Path,
        found: GraphIndex,
        pieces: list[tuple[int, int, bool]],
    ) -> list[list[Read]]:
        """Sort the rows of every chunk by graph, and return what pieces read: a range of each."""
        import pyarrow as pa

        size = 8 * len(self.columns.names()) * sum(chunk.rows for chunk in found.chunks)
        need_disk(scratch, size, f"the rows of {self.path}, sorted by graph,")
        write_ipc(scratch, GRAPHS.removesuffix(".arrow"), pa.table({"id": found.ids}))
        calls = [(chunk, self.columns, scratch, n) for n, chunk in enumerate(found.chunks)]
        sizes = [chunk.rows for chunk in found.chunks]
        made = workers.tasks("sort", sort_chunk, calls, sizes, "edges")
        files = [each for several in made for each in several]
        chunks, surveys = [chunk for chunk, _ in files], [survey for _, survey in files]
        again = GraphIndex.of(chunks, surveys, self.columns, found)
        return again.reads(pieces)
