"""Tables of edges with a column of graphs, or text that becomes such, as an input.

1. ``read_table``, ``read_text``  rows are sorted by graph and left as runs: etl/zoos/runs.py
2. ``count_graphs``  ranges of graphs say how many rows each graph has, in which order they came
3. graphs are cut into pieces by that; a piece reads its graphs from the runs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError
from penstock.output import file_stamp
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.inputs.parsed import SAME_ID, Parsed
from penstock.pipelines.centrality.inputs.table_piece import TablePiece
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec, costs_of, cut
from penstock.pipelines.etl.nodes.sorted_ids import as_user_has_them
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.etl.reading.layout import find_layout
from penstock.pipelines.etl.reading.pieces import find_pieces, needed_columns
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.zoos.runs import (
    ENDS,
    GraphRange,
    Run,
    by_graph,
    choose_ranges,
    runs_in,
    write_run,
)
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.rows import Rows
from penstock.sizes import need_disk

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

_TABLES = ("parquet", "arrow")  # other kinds are text
_ROWS = 1 << 22  # whose graphs one task counts
_LEAST_COST = 2e9  # of a piece: below, reading it takes longer than computing it


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
        self.nodes = self.bytes // 16  # nodes have some edges each
        self.scratch_bytes = 5 * self.bytes  # numbers are longer than most are in files
        self.layout = Layout("source", "target", graph="graph")
        if kind in _TABLES:
            given = EtlOptions(
                format="zoo",
                graph_id=options.graph_id,
                source=options.source,
                target=options.target,
                weight=options.weight if options.weighted else "none",
                relation="none",
            )
            paths = [str(file) for file in files]
            self.layout = find_layout(paths, given, kind)
            self.pieces = find_pieces(paths, kind, self.layout, given)
            self.has_weights = self.layout.weight is not None
        elif kind == "tu":
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
        """Read all of it into runs, and cut their graphs into pieces."""
        import pyarrow as pa

        need_disk(output.scratch, self.scratch_bytes, f"the rows of {self.path}")
        written = self._read(workers, output.scratch / "runs")
        self.failures += [reason for _, result in written for reason in result.get("lost", [])]
        runs = [run for folder, result in written for run in runs_in(folder, result["runs"])]
        if not runs:
            raise InputError(f"there is no graph in {self.path}", got=", ".join(self.failures[:1]))
        samples = [one for _, result in written for run in result["runs"] for one in run["samples"]]
        ranges = choose_ranges(samples, _ROWS)
        calls = [(part, part.of(runs)) for part in ranges]
        sizes = [sum(rows for _, rows in samples) // len(ranges)] * len(ranges)
        counted = workers.tasks("count", count_graphs, calls, sizes, "edges")
        table = pa.concat_tables(counted)
        failed = [each for _, result in written for each in result.get("failed", [])]
        return list(self._pieces(runs, table, failed))

    def _pieces(
        self, runs: list[Run], table: pa.Table, failed: list[tuple[Any, str]]
    ) -> Iterator[PieceSpec]:
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = table.column("graph").combine_chunks()
        rows, again = (as_numpy(table.column(name)) for name in ("rows", "runs"))
        self.graphs = len(ids)
        doubtful: dict[int, str] = {}
        if failed:
            words = pa.array([str(graph) for graph, _ in failed], pa.string())
            numbers = as_numpy(pc.index_in(words, value_set=ids.cast(pa.string()))).tolist()
            doubtful = {n: reason for n, (_, reason) in zip(numbers, failed, strict=True)}
        if self.kind in ("json", "edgelists"):  # a graph is in one line, or in one file
            doubtful |= dict.fromkeys(np.flatnonzero(again > 1).tolist(), SAME_ID)
        costs = costs_of(rows // 4 + 1, 2 * rows)  # guessed from edges alone
        items = 3 * rows
        if self.options.distances:
            items = items + rows**2 // 32
        users = as_user_has_them(ids, unsigned=self.layout.graph_type == "uint64")
        for first, stop, large in cut(costs, items, least_cost=_LEAST_COST):
            part = GraphRange(ids[first].as_py(), ids[stop].as_py() if stop < len(ids) else None)
            yield TablePiece(
                ids=users.take(as_arrow(np.arange(first, stop))),
                items=4 * int(rows[first:stop].sum()) + (stop - first),
                cost=float(costs[first:stop].sum()),
                large=large,
                part=part,
                runs=part.of(runs),
                unsigned=self.layout.id_type == "uint64",
                directed=self.directed,
                # A TU folder lists the entries of a matrix, an edge once or in both directions.
                added="pagerank" in self.options.wanted and self.kind != "tu",
                doubtful={n - first: doubtful[n] for n in sorted(doubtful) if first <= n < stop},
            )

    def _read(self, workers: Workers, folder: Path) -> list[tuple[Path, dict[str, Any]]]:
        """Make runs, and return what each task says of its own, and where they are."""
        calls: list[tuple[Any, ...]]
        if self.kind in _TABLES:
            folders = [folder / f"{n:05d}" for n in range(len(self.pieces))]
            calls = [(p, self.layout, f) for p, f in zip(self.pieces, folders, strict=True)]
            sizes = [piece.bytes for piece in self.pieces]
            return [
                *zip(folders, workers.tasks("read", read_table, calls, sizes, "B"), strict=True)
            ]
        from penstock.pipelines.centrality.inputs import edge_lists, json_lines, tu

        parser: Any = {"tu": tu, "edgelists": edge_lists, "json": json_lines}[self.kind]
        given = list(parser.parts(self.path, list(self.files)))
        folders = [folder / f"{n:05d}" for n in range(len(given))]
        calls = [
            (f, parser.parse, what, self.directed, self.options)
            for f, (what, _) in zip(folders, given, strict=True)
        ]
        results = workers.tasks("read", read_text, calls, [size for _, size in given], "B")
        # What is a word in one part is one in all.
        for names in (("graph",), ENDS):
            kinds = [result["kinds"][names[0]] for result in results]
            if len({*kinds}) < 2:
                continue
            numbers = [n for n, kind in enumerate(kinds) if kind != "string"]
            written = [(folders[n], results[n]) for n in numbers]
            for n in numbers:
                folders[n] = folders[n].with_name(f"{folders[n].name}-{names[0]}")
            calls = [(*old, names, folders[n]) for n, old in zip(numbers, written, strict=True)]
            again = workers.tasks("read again", as_words, calls, [1] * len(calls), "parts")
            for n, result in zip(numbers, again, strict=True):
                results[n] = result
        return list(zip(folders, results, strict=True))


# -- tasks -----------------------------------------------------------------------------------------


def read_table(piece: Piece, layout: Layout, folder: Path) -> dict[str, Any]:
    """Read a piece of a table, and leave a run for some rows at a time; a step for ``once``."""
    kind = "binary" if layout.id_type == "binary" else "string"
    columns = dict.fromkeys(needed_columns(layout).values(), kind)

    def make(folder: Path) -> dict[str, Any]:
        written: list[dict[str, Any]] = []
        for rows in read_rows(piece, columns, layout.shape):
            path = folder / f"{len(written):05d}.parquet"
            written.append(write_run(_clean(rows, layout), path))
        return {"runs": written}

    return spill.once(folder, make)


def _clean(rows: Rows, layout: Layout) -> pa.Table:
    """Return the columns of a run; an end or a weight may be missing, a graph may not."""
    import pyarrow as pa

    columns = {role: rows.columns[name] for role, name in needed_columns(layout).items()}
    checks = rows.checks
    found: dict[str, Any] = {
        "graph": convert.ids(columns["graph"], layout.graph_type, "graph", checks)
    }
    for end in ENDS:
        column, gaps = columns[end], convert.nulls_of(columns[end])
        if layout.id_type in ("int64", "uint64"):
            given = column.fill_null(0) if gaps.any() else column
            found[end] = as_arrow(convert.integers(given, layout.id_type, end, checks), gaps)
        else:
            text = pa.binary() if layout.id_type == "binary" else pa.string()
            found[end], bad = convert.cast_rows(column, text)
            checks.fail(bad, f"{end} is not valid UTF-8")
    if "weight" in columns:
        found["weight"] = convert.floats(columns["weight"], "weight", checks, missing=None)
    checks.report(rows.source, "error")
    return pa.table(
        {name: as_arrow(v) if isinstance(v, np.ndarray) else v for name, v in found.items()}
    )


def read_text(folder: Path, parse: Callable[..., Parsed], *given: Any) -> dict[str, Any]:
    """Read a part of some text, and leave a run; a step for ``once``."""

    def make(folder: Path) -> dict[str, Any]:
        found = parse(*given)
        return _written(found.table, folder) | {"failed": found.failed, "lost": found.lost}

    return spill.once(folder, make)


def as_words(
    old: Path, result: dict[str, Any], names: tuple[str, ...], folder: Path
) -> dict[str, Any]:
    """Write a run again with ids of ``names`` as strings; a step for ``once``."""
    import pyarrow as pa

    def make(folder: Path) -> dict[str, Any]:
        counts, table = GraphRange(None, None).read(runs_in(old, result["runs"]))
        numbers = np.repeat(np.arange(len(counts)), as_numpy(counts.column("rows")))
        graphs = counts.column("graph").take(as_arrow(numbers))
        table = table.append_column("graph", graphs)
        for name in names:
            number = table.column_names.index(name)
            table = table.set_column(number, name, table.column(name).cast(pa.string()))
        return result | _written(table, folder)

    return spill.once(folder, make)


def _written(table: pa.Table, folder: Path) -> dict[str, Any]:
    runs = [write_run(table, folder / "00000.parquet")] if len(table) else []
    return {"runs": runs, "kinds": {one.name: str(one.type) for one in table.schema}}


def count_graphs(part: GraphRange, runs: list[Run]) -> pa.Table:
    """Return the graphs of a range, their rows, and in how many runs they are; on a worker."""
    import pyarrow as pa

    counts = part.count(runs)
    named, rows = counts.column("graph"), as_numpy(counts.column("rows"))
    graphs, starts, order = by_graph(named)
    rows = np.add.reduceat(rows if order is None else rows[order], starts[:-1])
    columns = [graphs.to_arrow().cast(named.type), as_arrow(rows), as_arrow(np.diff(starts))]
    return pa.table(columns, names=["graph", "rows", "runs"])
