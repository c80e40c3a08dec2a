"""Where graphs come from: a directory of ours, or tables and text, which etl reads.

module       reads
directory    a graph or a zoo in the format of docs/format.md
table        what etl makes a zoo of: sorted by graph, then cut into pieces
table_piece  a piece: from rows to a batch
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.paths import client_input
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers


class CentralityInput(ABC):
    """The graphs of one run.

    path         of it; bytes: about what it takes on disk
    kind         what it is, as ``--format`` says it; of directories graph or zoo
    searched     folders of which all files are read
    one          whether it is one graph, whose results have no column of graphs
    directed     whether edges have a direction; has_weights: whether they have weights
    nodes        of all graphs, about
    id_bytes     of a node's id, as Parquet has it, about
    bad_rows     how many rows were skipped

    Of a directory all is known before workers have looked, of tables nothing: None, or -1.

    graphs       how many
    sizes, edges (graphs,) int64: nodes and edges of each
    specs        the pieces
    files        that are read; scratch_bytes: what is written of them on the way, about
    """

    path: str | Path
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

    @abstractmethod
    def stamps(self) -> dict[str, Any]:
        """Return by what its files are known, by path."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return what centrality.json says of it."""

    @abstractmethod
    def prepare(self, workers: Workers, output: Output) -> list[PieceSpec]:
        """Examine all of it on workers, and return its pieces."""


def open_input(
    given: str | Path | Graph, options: CentralityOptions, verify: bool, quiet: bool
) -> CentralityInput:
    """Open what is given, as the options or the names of its files say."""
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
    return found


def _is_graph(path: Path) -> bool:
    """Say whether a path is a graph or zoo, be it damaged: its opening says what is wrong."""
    return (path / "graph.json").exists() or (path / "shards").is_dir()
