"""Where graphs come from: a directory of ours, or tables and text that are read as they are.

module       reads
directory    a graph or a zoo in the format of docs/format.md
table        tables of edges, whatever wrote them, and text: sorted by graph, then cut into pieces
table_piece  a piece: from rows to a batch
tu, edge_lists, json_lines    text, parsed into rows
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.arrays import Array
from penstock.errors import InputError, UsageError
from penstock.paths import client_path
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.pieces import PieceSpec
from penstock.pipelines.tables.sources import codec_of, find_files, format_of

if TYPE_CHECKING:
    from penstock.graph import Graph
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

# What files are, by the format that their names promise.
_KINDS = {
    "parquet": "parquet", "arrow": "arrow", "json": "json",
    "edgelist": "edgelists", "csv": "edgelists", "tsv": "edgelists",
}  # fmt: skip


class CentralityInput(ABC):
    """The graphs of one run.

    path         of it; bytes: about what it takes on disk
    kind         what it is, as ``--format`` says it; of directories graph or zoo
    searched     folders of which all files are read
    one          whether it is one graph, whose results have no column of graphs
    directed     whether edges have a direction; has_weights: whether they have weights
    nodes        of all graphs, about
    id_bytes     of a node's id, as Parquet has it, about
    failures     what cannot be read and belongs to no graph that is known

    Of a directory all is known before workers have looked, of tables nothing: None, or -1.

    graphs       how many
    sizes, edges (graphs,) int64: nodes and edges of each
    specs        the pieces
    files        of tables; scratch_bytes: what is written of them on the way, about
    """

    path: Path
    kind: str
    searched: list[str]
    bytes: int
    one: bool = False
    directed: bool
    has_weights: bool
    nodes: int
    id_bytes: int = 8
    failures: list[str]
    graphs: int = -1
    sizes: Array | None = None
    edges: Array | None = None
    specs: list[PieceSpec] | None = None
    files: Sequence[Path] = ()
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
    path = client_path(given)
    kind = options.format if options.format != "auto" else _guess(path)
    found: CentralityInput
    if kind == "graph":
        from penstock.pipelines.centrality.inputs.directory import DirectoryInput
        from penstock.pipelines.job.declare import open_graph

        found = DirectoryInput(open_graph(given, options, verify, quiet), options)
    else:
        from penstock.pipelines.centrality.inputs.table import TableInput

        if verify:
            raise UsageError(
                "--verify compares a graph with its checksums", got=f"{path}, which has none"
            )
        if not path.exists():
            raise InputError(f"there is no {path}", remedy="Check the spelling of the path")
        found = TableInput(path, kind, list_files(path, kind), options)
    options.check_effect(found.kind)
    return found


def _guess(path: Path) -> str:
    """Return the format of an input by its name and by what is in it."""
    if path.is_file():
        return _KINDS.get(format_of(str(path)) or "", "graph")
    if not path.is_dir() or (path / "graph.json").exists() or (path / "shards").is_dir():
        return "graph"  # whose opening says what is wrong
    if any(path.glob("*_graph_indicator.txt*")):
        return "tu"
    formats = map(format_of, find_files([str(path)]))
    found = sorted({_KINDS[one] for one in formats if one in _KINDS})
    if len(found) > 1:
        raise UsageError(
            f"{path} holds files of several formats: {', '.join(found)}",
            remedy="Say which with --format",
        )
    if not found:
        raise InputError(
            f"{path} holds nothing that centrality reads",
            expected="a graph or zoo (graph.json), Parquet or Arrow IPC files, a TU folder, lists "
            "of edges, or JSON lines",
            remedy="Name another input, or say with --format what it is",
        )
    return found[0]


def list_files(path: Path, kind: str) -> list[Path]:
    """Return the files of an input in their order; those of other formats are left out."""
    if kind == "tu":
        from penstock.pipelines.etl.zoos.tu_files import find_tu_files

        return [Path(file) for file in find_tu_files(str(path)).values()]
    if path.is_file() and kind == "edgelists":
        raise UsageError(
            f"{path} is one list of edges",
            expected="a folder, with a file a graph",
            remedy="Make it a graph with penstock etl, which centrality takes, too",
        )
    return [Path(file) for file in find_files([str(path)], kind)]


def stem_of(file: Path, folder: Path) -> str:
    """Return a file's name below a folder, without suffixes: the graph's, of a list of edges."""
    name = file.relative_to(folder)
    if codec_of(str(name)) is not None:
        name = name.with_suffix("")
    return (name.with_suffix("") if format_of(str(name)) in _KINDS else name).as_posix()
