"""A graph on disk: a directory that every job reads, mapped rather than loaded.

graph.json        counts, dtypes, shards, checksums, how it was made
nodes.parquet     row i: the user's id of node i, and type, label, split, graph if they exist
shards/00000/     a range of rows: indptr.npy, indices.npy, weights.npy, relations.npy, times.npy
features/         00000.npy (dense) or 00000.{indptr,indices,data}.npy (sparse)
heldout/valid/    edges kept out of the shards: sources.npy, targets.npy, relations.npy, ...
graphs.parquet    a zoo only: graph i: the user's id, first node, nodes, label
"""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.bounds import check_indices, check_indptr, check_rows
from penstock.csr import CSR, EDGE_COLUMNS
from penstock.errors import CorruptFile, MissingFile, UsageError
from penstock.files import check_sums
from penstock.manifest import COPY_AGAIN, Manifest, graph_digest
from penstock.paths import client_path
from penstock.sizes import need_memory
from penstock.threads import joined

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    import scipy.sparse as sp

    from penstock.writer import GraphWriter

SPLITS = ("train", "valid", "test")
_UNNAMED = 1 << 31  # relations of a graph without names: any number is valid


def count_splits(numbers: Array) -> dict[str, int]:
    """Return how many nodes are in each split; ``numbers`` are those of SPLITS, -1: none."""
    return {name: int(np.count_nonzero(numbers == i)) for i, name in enumerate(SPLITS)}


class Graph:
    """An opened graph: counts at once, arrays mapped on first use.

    Attributes
    ----------
    path
        The directory.
    manifest
        The content of graph.json.
    verified
        Whether every file was compared with its digest.

    Examples
    --------
    >>> with Graph.create("g") as writer: ...  # a graph that fits in memory
    >>> graph = Graph.open("follows")  # cheap: reads graph.json and compares file sizes
    >>> graph = Graph.open("follows", verify=True)  # reads every file and compares digests, too
    >>> graph.num_nodes, graph.num_edges  # an undirected edge is stored both ways
    >>> graph.shard(0)  # CSR of a range of rows, mapped
    >>> graph.csr()  # CSR of all rows (copied if there are several shards)
    >>> graph.features(), graph.feature_rows(0)  # node data, if the graph has it
    >>> graph.labels(), graph.labelled(), graph.split("train"), graph.node_column("label")
    >>> graph.heldout("test")["targets"]  # edges outside the shards
    >>> graph.internal_ids(graph.user_ids([0, 5]))  # the ids of the user's own tables, and back
    >>> graph.validate()  # reads everything and checks it
    """

    def __init__(self, path: Path, manifest: Manifest, *, verified: bool = False) -> None:
        self.path, self.manifest, self.verified = path, manifest, verified

    @classmethod
    def open(cls, path: str | Path | Graph, *, verify: bool = False, quiet: bool = True) -> Graph:
        """Open a graph directory.

        Parameters
        ----------
        path
            The directory; or a graph, which is opened again.
        verify
            Compare every file with the digest it was written with, at the speed of the disk; jobs
            verify the graph's partitions, too, before they use them.
        quiet
            Print no progress.

        Returns
        -------
        Graph
            Counts at once; arrays are mapped on first use.

        Raises
        ------
        GraphError
            ``NotAGraph``, ``NewerVersion``, ``MissingFile``, ``TruncatedFile`` or ``CorruptFile``,
            with the file and the remedy.

        Examples
        --------
        >>> Graph.open("follows").num_nodes
        """
        path = client_path(path)
        manifest = Manifest.load(path)
        manifest.check_files(path)
        if verify:
            check_sums(path, manifest.files.values(), remedy=COPY_AGAIN, quiet=quiet)
        return cls(path, manifest, verified=verify)

    @classmethod
    def create(
        cls, path: str | Path, *, overwrite: bool = False
    ) -> AbstractContextManager[GraphWriter]:
        """Write a graph that fits in memory; it appears at ``path`` when the block ends.

        Parameters
        ----------
        path
            Directory to write.
        overwrite
            Replace an existing graph.

        Returns
        -------
        context manager of a GraphWriter
            Its ``edges`` and ``nodes`` take the content of the graph.

        Raises
        ------
        OutputExists
            ``path`` is taken, and ``overwrite`` is not set, or the existing path is not a graph.

        Examples
        --------
        >>> with Graph.create("g") as writer:
        ...     writer.edges(CSR.from_edges(sources, targets, nodes))
        ...     writer.nodes(ids, label=labels)
        """
        from penstock.writer import create_graph

        return create_graph(path, overwrite=overwrite)

    def __fspath__(self) -> str:
        # So that an option for a graph's path also accepts an opened graph.
        return str(self.path)

    def __repr__(self) -> str:
        return f"Graph({str(self.path)!r}, nodes={self.num_nodes}, edges={self.num_edges})"

    @property
    def digest(self) -> str:
        """The identity of the graph for a run: the content of graph.json without its provenance."""
        return graph_digest(self.path)

    def stamps(self) -> dict[str, str]:
        """Return the stamps that identify it for a job."""
        return {str(self.path): self.digest}

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.manifest.nodes

    @property
    def num_edges(self) -> int:
        """The number of directed edges; an undirected one between two nodes counts twice."""
        return self.manifest.edges

    @property
    def num_shards(self) -> int:
        """The number of row ranges of the edges."""
        return len(self.manifest.shards)

    def shard(self, number: int) -> CSR:
        """Return one row range, mapped; its first use in a process checks every index.

        Parameters
        ----------
        number
            Below ``num_shards``.

        Returns
        -------
        CSR
            Its rows, with ids over the whole graph.

        Raises
        ------
        GraphError
            A file is missing or damaged.
        """
        folder, entry = self._shard_folder(number), self.manifest.shards[number]
        names_of_relations = self.manifest.relations
        relations = _UNNAMED if names_of_relations is None else len(names_of_relations)
        names = [n for n in ("indptr", "indices", *EDGE_COLUMNS) if n in self.manifest.dtypes]
        arrays = {name: load_npy(folder / f"{name}.npy") for name in names}
        csr = CSR(first_row=entry.start, **arrays)
        check_rows(
            csr,
            folder,
            rows=entry.stop - entry.start,
            edges=entry.edges,
            nodes=self.num_nodes,
            relations=relations,
            remedy=COPY_AGAIN,
        )
        return csr

    def _shard_folder(self, number: int) -> Path:
        return self.path / "shards" / f"{number:05d}"

    def csr(self) -> CSR:
        """Return all rows.

        Returns
        -------
        CSR
            One shard is mapped; several are copied into memory.

        Raises
        ------
        CapacityError
            Several shards do not fit in memory.
        """
        if self.num_shards > 1:
            size = sum(e.bytes for n, e in self.manifest.files.items() if n.startswith("shards/"))
            need_memory(size, f"the whole of {self.path}", remedy="Read it shard by shard")
        return CSR.concatenate(self.shard(number) for number in range(self.num_shards))

    @cached_property
    def degrees(self) -> Array:
        """The out-degree of every node: (nodes,) int64."""
        found = []
        for number, entry in enumerate(self.manifest.shards):
            path = self._shard_folder(number) / "indptr.npy"
            indptr = load_npy(path)
            check_indptr(indptr, entry.edges, path, remedy=COPY_AGAIN)
            found.append(np.diff(indptr))
        return np.concatenate(found)

    # -- nodes ---------------------------------------------------------------------------------

    def node_column(self, name: str) -> pa.ChunkedArray:
        """Return a column of nodes.parquet.

        Parameters
        ----------
        name
            ``id``, ``type``, ``label``, ``split`` or ``graph``.

        Returns
        -------
        pyarrow.ChunkedArray
            One value per node, in order.
        """
        from penstock.arrow import read_column

        return read_column(self.ids_file, name)

    @property
    def ids_file(self) -> Path:
        """The Parquet file with one row per node, in order; column ``id`` has the user's ids."""
        return self.path / "nodes.parquet"

    def user_ids(self, nodes: Any = None) -> pa.Array | pa.ChunkedArray:
        """Return the user's ids of internal ids; strings such as ``user:5`` if nodes have types.

        Parameters
        ----------
        nodes
            Internal ids [default: all, in order].

        Returns
        -------
        pyarrow.Array or pyarrow.ChunkedArray
            One id each.
        """
        ids = self.node_column("id")
        if nodes is None:
            return ids
        from penstock.arrow import take

        return take(ids.combine_chunks(), np.asarray(nodes, dtype=np.int64).ravel())

    def internal_ids(self, user_ids: Any) -> Array:
        """Return the internal ids of the user's ids.

        Parameters
        ----------
        user_ids
            A list, or an Arrow array.

        Returns
        -------
        Array
            (ids,) int64; -1 if an id is unknown.

        Raises
        ------
        UsageError
            Ids of another type, or a zoo, whose graphs may share ids.
        """
        if self.manifest.graphs is not None:
            raise UsageError(
                f"{self.path} is a zoo, whose graphs may share node ids",
                remedy="Look ids up in the nodes of one graph, see graphs.parquet",
            )
        import pyarrow as pa

        from penstock.arrow import positions

        ids = self.node_column("id").combine_chunks()
        wanted = user_ids if isinstance(user_ids, pa.Array) else pa.array(user_ids)
        try:
            if pa.types.is_boolean(wanted.type):  # a mask would become 0 and 1
                raise pa.ArrowInvalid("a mask is not ids")
            wanted = wanted.cast(ids.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(
                f"these are not node ids of {self.path}",
                expected=f"values of type {ids.type}",
                got=f"{wanted.type}: {error}",
            ) from error
        return positions(ids, wanted)

    def labels(self) -> Array | list[list[int] | None]:
        """Return the labels of all nodes.

        Returns
        -------
        Array or list
            Class numbers (-1: none), values (NaN: none), or lists of classes (None: none). An
            empty list is a label: the node has none of the classes.
        """
        from penstock.arrow import as_numpy

        column = self.node_column("label")
        if self.manifest.labels == "multi":
            lists: list[list[int] | None] = column.to_pylist()
            return lists
        empty = np.nan if self.manifest.labels == "value" else -1
        return as_numpy(column, empty)

    def labelled(self) -> Array:
        """Return the mask of the nodes that have a label: (nodes,) bool."""
        if self.manifest.labels == "multi":
            return np.asarray(self.node_column("label").is_valid())
        labels = np.asarray(self.labels())
        return ~np.isnan(labels) if self.manifest.labels == "value" else labels >= 0

    def split(self, name: str) -> Array:
        """Return the mask of the nodes in a split.

        Parameters
        ----------
        name
            ``train``, ``valid`` or ``test``.

        Returns
        -------
        Array
            (nodes,) bool.

        Raises
        ------
        UsageError
            The split does not exist.
        """
        if name not in SPLITS:
            raise UsageError(f"unknown split {name!r}", expected=f"one of {SPLITS}")
        from penstock.arrow import as_numpy

        numbers = as_numpy(self.node_column("split"), -1)
        return np.asarray(numbers == SPLITS.index(name))

    # -- features ------------------------------------------------------------------------------

    def features(self, nodes: Array | None = None) -> Array | sp.csr_matrix | None:
        """Return node features.

        Parameters
        ----------
        nodes
            Ascending internal ids [default: all].

        Returns
        -------
        Array, scipy.sparse.csr_matrix or None
            (nodes, width), dense or sparse as stored; None without features.

        Raises
        ------
        CapacityError
            Several files do not fit in memory.
        """
        entry = self.manifest.features
        if entry is None:
            return None
        pieces = [self.feature_rows(number) for number in range(len(entry.starts))]
        if nodes is not None:
            ends = np.searchsorted(nodes, [*entry.starts[1:], self.num_nodes])
            parts = np.split(nodes, ends[:-1])
            pieces = [p[n - s] for p, n, s in zip(pieces, parts, entry.starts, strict=True)]
        if len(pieces) == 1:
            return pieces[0]
        if nodes is None:
            need_memory(
                sum(e.bytes for n, e in self.manifest.files.items() if n.startswith("features/")),
                f"the features of {self.path}",
                remedy="Read them with feature_rows, file by file",
            )
        if entry.kind == "dense":
            return joined(pieces)
        import scipy.sparse as sp

        return sp.vstack(pieces, format="csr")

    def feature_rows(self, number: int) -> Array | sp.csr_matrix:
        """Return the features of one row-range file, mapped.

        Parameters
        ----------
        number
            Of the file, whose rows start at ``manifest.features.starts[number]``.

        Returns
        -------
        Array or scipy.sparse.csr_matrix
            (rows, width), dense or sparse as stored.

        Raises
        ------
        UsageError
            The graph has no features.
        """
        entry = self.manifest.features
        if entry is None:
            raise UsageError(f"{self.path} has no features")
        return load_features(self.path / "features" / f"{number:05d}", entry.kind, entry.width)

    def heldout(self, name: str) -> dict[str, Array]:
        """Return held-out edges, mapped.

        Parameters
        ----------
        name
            ``valid`` or ``test``.

        Returns
        -------
        dict of str to Array
            ``sources``, ``targets`` and the edge columns that exist, by name.

        Raises
        ------
        UsageError
            The graph has no such edges.
        """
        if name not in self.manifest.heldout:
            raise UsageError(
                f"{self.path} holds out no {name!r} edges",
                expected=f"one of {sorted(self.manifest.heldout)}",
            )
        folder = self.path / "heldout" / name
        found = {file.stem: load_npy(file) for file in sorted(folder.glob("*.npy"))}
        limits = {"sources": self.num_nodes, "targets": self.num_nodes}
        if self.manifest.relations is not None:
            limits["relations"] = len(self.manifest.relations)
        for column in limits.keys() & found.keys():
            path = folder / f"{column}.npy"
            check_indices(found[column], limits[column], path, remedy=COPY_AGAIN)
        return found

    def validate(self, *, quiet: bool = True) -> None:
        """Read everything: every checksum, then every index, which must be in bounds.

        Parameters
        ----------
        quiet
            Print no progress.

        Raises
        ------
        GraphError
            Names the first wrong file.
        """
        check_sums(self.path, self.manifest.files.values(), remedy=COPY_AGAIN, quiet=quiet)
        for number in range(self.num_shards):
            self.shard(number)
        for number in range(len(self.manifest.features.starts) if self.manifest.features else 0):
            self.feature_rows(number)
        for name in self.manifest.heldout:
            self.heldout(name)


# NumPy reads a header with Python's parser, which in Python 3.11 counts its depth for all threads
# together: two at once may end in "SystemError: AST constructor recursion depth mismatch".
_PARSING = threading.Lock()


def load_features(
    stem: Path, kind: str, width: int, *, remedy: str = COPY_AGAIN
) -> Array | sp.csr_matrix:
    """Map features, dense or sparse, in files whose names begin with ``stem``."""
    if kind == "dense":
        return load_npy(stem.with_suffix(".npy"), remedy=remedy)
    import scipy.sparse as sp

    paths = [stem.with_suffix(f".{part}.npy") for part in ("data", "indices", "indptr")]
    data, indices, indptr = (load_npy(path, remedy=remedy) for path in paths)
    check_indptr(indptr, len(data), paths[2], remedy=remedy)
    check_indices(indices, width, paths[1], remedy=remedy)
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width))


def load_npy(path: Path, *, remedy: str = COPY_AGAIN) -> Array:
    """Map an .npy file read-only; ``remedy`` is for the error of a damaged one."""
    try:
        with _PARSING:
            try:
                # A Path would be resolved, which takes longer than to map the file.
                array: Array = np.lib.format.open_memmap(str(path), mode="r")
            except ValueError:
                # An empty array cannot be mapped.
                with path.open("rb") as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, TokenError) as error:
        raise CorruptFile(
            f"{path} is damaged", expected="an .npy array", got=str(error), remedy=remedy
        ) from error
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing", remedy=remedy) from error
    return array
