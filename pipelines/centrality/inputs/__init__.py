"""The inputs of a run: a directory of Penstock, or tables and text, which etl reads.

module       reads
directory    a graph or a zoo in the format of docs/format.md
table        tables and text of many graphs: sorted by graph, then cut into pieces
table_piece  a piece: from rows to a batch
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.output import file_stamp
from penstock.paths import client_input
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.etl.job import EtlJob
    from penstock.pipelines.job.workers import Workers


class CentralityInput(ABC):
    """The graphs of one run.

    path         of the input; bytes: its approximate size on disk
    reader       the graph, or etl's job, which has the stamps of the files
    kind         its ``--format``; for directories graph or zoo
    searched     folders whose files are all read
    one          whether it is one graph: its results have no column of graphs
    directed     whether edges have a direction; has_weights: whether they have weights
    nodes        of all graphs, about
    id_bytes     approximate bytes of a node's id in Parquet
    bad_rows     number of skipped rows

    These are known at once for a directory, and for tables only after ``prepare``: None, or -1.

    graphs       number of graphs
    sizes, edges (graphs,) int64: nodes and edges of each
    specs        the pieces
    files        that are read; scratch_bytes: approximate size of intermediate files
    """

    path: str | Path
    reader: Graph | EtlJob
    kind: str
    searched: list[str]
    bytes: int
    one: bool = False
    directed: bool
    has_weights: bool
    nodes: int
    id_bytes: int = 8
    bad_rows: int = 0
    graphs: int = -1
    sizes: Array | None = None
    edges: Array | None = None
    specs: list[PieceSpec] | None = None
    files: Sequence[str] = ()
    scratch_bytes: int = 0

    beside: Sequence[Path] = ()  # other files that decide the result: of values of nodes

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of its files and of those beside it, by path."""
        beside = {str(file): file_stamp(file) for file in self.beside if file.is_file()}
        return {**self.reader.stamps(), **beside}

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return its entry in centrality.json."""

    @abstractmethod
    def prepare(self, workers: Workers, output: Output) -> list[PieceSpec]:
        """Examine the whole input on workers, and return its pieces."""


def open_input(
    given: str | Path | Graph, options: CentralityOptions, verify: bool, quiet: bool
) -> CentralityInput:
    """Open an input; the options or the names of its files decide its kind."""
    path = client_input(given if isinstance(given, str | Path) else given.path)
    found: CentralityInput
    if options.format == "graph" or (options.format == "auto" and _is_graph(Path(path))):
        from penstock.pipelines.centrality.inputs.directory import DirectoryInput
        from penstock.pipelines.job.declare import open_graph

        found = DirectoryInput(open_graph(given, options, verify, quiet), options)
    else:
        from penstock.pipelines.centrality.inputs.table import TableInput

        if verify:
            raise UsageError(
                "--verify compares a graph with its checksums", got=f"{path}, which has none"
            )
        found = TableInput(path, options)
    options.check_effect(found.kind)
    found.beside = list(options.node_values().values())
    return found


def _is_graph(path: Path) -> bool:
    """Say whether a path is a graph or zoo, even a damaged one: opening it reports the damage."""
    return (path / "graph.json").exists() or (path / "shards").is_dir()
