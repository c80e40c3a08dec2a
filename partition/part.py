"""An opened partition: every array is mapped on first use.

partition.json          counts, what was tried, checksums
assignment.npy          (nodes,) int32: the part of each node
local.npy               (nodes,): its place among the nodes of that part
parts/00000/
  owned.npy             global ids of the part's nodes, ascending: local ids 0 .. owned - 1
  ghosts.npy            global ids of other parts' nodes that it reads, by owner, then ascending:
                        local ids owned .. owned + ghosts - 1
  indptr.npy, indices.npy, weights.npy, relations.npy, times.npy
                        the rows of the owned nodes; neighbours are local ids, ascending
  receive_starts.npy    (k + 1,): ghosts[starts[q]:starts[q + 1]] come from part q
  send_starts.npy, send.npy
                        send[starts[q]:starts[q + 1]] are the local ids that part q needs, in
                        the order of q's ghosts
  features.npy, or features.{indptr,indices,data}.npy if they are sparse
  labels.npy, or labels.{indptr,indices}.npy if a node has several classes, and labelled.npy,
                        false if it has no label, which differs from no class
  split.npy             0 train, 1 valid, 2 test, -1 none
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.bounds import check_indices, check_indptr, check_length, check_rows
from penstock.csr import CSR
from penstock.errors import UsageError
from penstock.files import check_sums
from penstock.graph import SPLITS, Graph, load_features, load_npy
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.partition.manifest import AGAIN, FILE_NAME, PartitionManifest

if TYPE_CHECKING:
    import scipy.sparse as sp


# A part does not know the graph's number of relations: they are checked when it is cut.
_ANY = 1 << 31


def partition_path(graph: Graph | Path, k: int) -> Path:
    """Return the path of the partition of ``graph`` into ``k`` parts."""
    return (graph if isinstance(graph, Path) else graph.path) / "partition" / f"k{k}"


def part_folder(rank: int) -> str:
    """Return the folder of a part inside its partition."""
    return f"parts/{rank:05d}"


class Partition:
    """An opened partition.

    Attributes
    ----------
    path
        The directory.
    manifest
        The content of partition.json: counts, and how it was made.

    Examples
    --------
    >>> partition = Partition.open("follows/partition/k4")
    >>> partition = Partition.of(graph, 4)
    >>> partition.assignment  # the part of each node, mapped
    >>> partition.part(0).csr  # of one part, mapped
    >>> partition.validate()  # reads every file and compares its checksum
    """

    def __init__(self, path: Path, manifest: PartitionManifest) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def open(cls, path: str | Path) -> Partition:
        """Open a partition.

        Parameters
        ----------
        path
            Its directory, or that of a copy away from its graph.

        Returns
        -------
        Partition
            Counts at once; arrays are mapped on first use.

        Raises
        ------
        GraphError
            It is not a partition, a file is missing or damaged, or its graph has changed since.
        """
        path = Path(path)
        manifest = PartitionManifest.load(path)
        graph = path.absolute().parent.parent
        if (graph / GRAPH_FILE).is_file():
            manifest.check_graph(path, graph)
        manifest.check_files(path)
        return cls(path, manifest)

    @classmethod
    def of(cls, graph: Graph, k: int) -> Partition:
        """Open a partition of a graph.

        Parameters
        ----------
        graph
            An opened graph.
        k
            The number of parts.

        Returns
        -------
        Partition
            As ``open`` returns it.
        """
        return cls.open(partition_path(graph, k))

    def __repr__(self) -> str:
        return f"Partition({str(self.path)!r}, k={self.k}, made_by={self.manifest.made_by!r})"

    @property
    def k(self) -> int:
        """The number of parts."""
        return self.manifest.k

    @cached_property
    def assignment(self) -> Array:
        """The part of each node: (nodes,) int32."""
        return _load_ids(self.path / "assignment.npy", self.manifest.nodes, self.k)

    @cached_property
    def local(self) -> Array:
        """The local id of each node in the part that owns it: (nodes,)."""
        return _load_ids(self.path / "local.npy", self.manifest.nodes, self.manifest.nodes)

    def part(self, rank: int) -> Part:
        """Return one part.

        Parameters
        ----------
        rank
            Of the part, below ``k``.

        Returns
        -------
        Part
            One rank's data; its arrays are mapped.

        Raises
        ------
        UsageError
            The part does not exist.
        """
        if not 0 <= rank < self.k:
            raise UsageError(
                f"{self.path} has no part {rank}", expected=f"one of 0 .. {self.k - 1}"
            )
        return Part(rank, self.path / part_folder(rank), self.manifest)

    def validate(self) -> None:
        """Read every file and compare its checksum.

        Raises
        ------
        CorruptFile
            Names the first wrong file.
        """
        check_sums(self.path, self.manifest.files.values(), remedy=AGAIN)


def partitions(graph: Graph) -> list[Path]:
    """Return the partitions of ``graph``, fewest parts first, without opening them."""
    found = (graph.path / "partition").glob(f"k*/{FILE_NAME}")
    return sorted((file.parent for file in found), key=lambda path: (len(path.name), path.name))


@dataclass(frozen=True, eq=False)
class Part:
    """The data of one rank. Local ids: owned nodes first, then ghosts.

    csr       the rows of the owned nodes: neighbours are local ids, with edge columns
    owned     (owned,) global ids, ascending
    ghosts    (ghosts,) global ids, by owner, then ascending
    send      {peer: local ids of owned nodes, in the order in which the peer stores them}
    receive   {peer: slice of local ids}: received rows arrive there, in place
    """

    rank: int
    path: Path
    manifest: PartitionManifest

    @cached_property
    def csr(self) -> CSR:
        """The rows of the owned nodes, with local ids."""
        names = ("indptr", "indices", *self.manifest.columns)
        arrays: dict[str, Any] = {name: self._load(name) for name in names}
        csr, entry = CSR(**arrays), self.manifest.parts[self.rank]
        check_rows(
            csr,
            self.path,
            rows=entry.nodes,
            edges=entry.edges,
            nodes=self.rows,
            relations=_ANY,
            remedy=AGAIN,
        )
        return csr

    @cached_property
    def owned(self) -> Array:
        """Global ids of the owned nodes: (owned,), ascending."""
        count = self.manifest.parts[self.rank].nodes
        return _load_ids(self.path / "owned.npy", count, self.manifest.nodes)

    @cached_property
    def ghosts(self) -> Array:
        """Global ids of the ghosts: (ghosts,), by owner, then ascending."""
        count = self.manifest.parts[self.rank].ghosts
        return _load_ids(self.path / "ghosts.npy", count, self.manifest.nodes)

    @cached_property
    def send(self) -> dict[int, Array]:
        """For each peer that reads owned nodes, their local ids, in the order of its ghosts."""
        ids, starts = self._load("send"), self._starts("send_starts", "send")
        check_indices(ids, len(self.owned), self.path / "send.npy", remedy=AGAIN)
        return {peer: ids[span] for peer, span in _spans(starts)}

    @cached_property
    def receive(self) -> dict[int, slice]:
        """For each peer that owns ghosts, their local ids, as a slice."""
        return dict(_spans(self._starts("receive_starts", "ghosts") + len(self.owned)))

    @property
    def rows(self) -> int:
        """The number of local ids: owned nodes and ghosts."""
        return len(self.owned) + len(self.ghosts)

    @property
    def global_ids(self) -> Array:
        """The global id of each local id: (rows,)."""
        return np.concatenate([self.owned, self.ghosts])

    def features(self) -> Array | sp.csr_matrix | None:
        """Return the features of the owned nodes: dense, SciPy CSR, or None."""
        kind, width = self.manifest.features, self.manifest.feature_width
        if kind is None:
            return None
        return load_features(self.path / "features", kind, width, remedy=AGAIN)

    def labels(self) -> Array | list[Array | None]:
        """Return the labels of the owned nodes: numbers (-1 or NaN: none), or arrays (None: none).

        The arrays contain classes; an empty one is a label.
        """
        if self.manifest.labels is None:
            raise UsageError(f"{self.path} has no labels")
        if self.manifest.labels != "multi":
            return self._load("labels")
        indptr, indices, labelled = self.label_lists()
        lists = np.split(indices, indptr[1:-1])
        return [one if known else None for one, known in zip(lists, labelled, strict=False)]

    def label_lists(self) -> tuple[Array, Array, Array]:
        """Return several classes per node as indptr, indices, and which nodes have a label."""
        return self._load("labels.indptr"), self._load("labels.indices"), self._load("labelled")

    def split(self, name: str) -> Array:
        """Return the mask of the owned nodes in ``train``, ``valid`` or ``test``."""
        if name not in SPLITS or not self.manifest.splits:
            has = f"one of {SPLITS}" if self.manifest.splits else "a graph with splits"
            raise UsageError(f"{self.path} has no split {name!r}", expected=has)
        return np.asarray(self._load("split") == SPLITS.index(name))

    def _starts(self, name: str, of: str) -> Array:
        path = self.path / f"{name}.npy"
        starts = load_npy(path)
        check_length(starts, self.manifest.k + 1, path, remedy=AGAIN)
        check_indptr(starts, len(self._load(of)), path, remedy=AGAIN)
        return starts

    def _load(self, name: str) -> Array:
        return load_npy(self.path / f"{name}.npy")


def _load_ids(path: Path, count: int, stop: int) -> Array:
    ids = load_npy(path)
    check_length(ids, count, path, remedy=AGAIN)
    check_indices(ids, stop, path, remedy=AGAIN)
    return ids


def _spans(starts: Array) -> list[tuple[int, slice]]:
    pairs = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    return [(peer, slice(*pair)) for peer, pair in enumerate(pairs) if pair[0] < pair[1]]
