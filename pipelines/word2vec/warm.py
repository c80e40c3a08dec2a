"""A warm start: words that begin with the vectors of another training run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.csr import ranges
from penstock.errors import InputError, UsageError
from penstock.files import link, remove, save_npy
from penstock.graph import Graph
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import CONTEXT
from penstock.pipelines.word2vec.vocabulary import Vocabulary
from penstock.sizes import plural

_NODES = 1 << 16  # new nodes whose neighbours are read together


class WarmStart:
    """Vectors to begin with.

    initialised  words that have a vector there
    averaged     nodes that begin with the mean of their neighbours
    """

    def __init__(self, path: Path, dim: int) -> None:
        self.path, self.vectors = path, Vectors.open(path)
        self.initialised = self.averaged = 0
        if self.vectors.dimension != dim:
            raise UsageError(
                f"{path} holds vectors of another dimension",
                expected=f"--dim {dim}",
                got=plural(self.vectors.dimension, "dimension"),
                remedy=f"Give --dim {self.vectors.dimension}",
            )
        self.context = self.vectors.context  # reports damage before the input is read

    def prepare(self, vocabulary: Vocabulary, graph: Graph | None, folder: Path) -> None:
        """Write the vectors to begin with, means of neighbours included, for ranks to read."""
        ids = vocabulary.ids()
        rows = self.vectors.find(ids)
        words = np.flatnonzero(rows >= 0)
        self.initialised = len(words)
        if not len(words):
            raise UsageError(
                f"{self.path} has none of the {vocabulary.words:,} ids of the input",
                expected=f"vectors of the same ids, such as {self.vectors.example()}",
                got=f"ids such as {ids[0].as_py()!r}",
                remedy="Leave --init out, or name the vectors of this input",
            )
        same = np.array_equal(rows, np.arange(len(self.vectors)))
        chosen = slice(None) if same else rows[words]
        values = self.vectors.values[chosen]
        if not np.isfinite(values).all():
            self.vectors.check_finite()
        found_words, found = words, values
        if graph is not None and len(words) < vocabulary.words:
            new, means = neighbour_means(graph, words, values)
            self.averaged = len(new)
            found_words = np.concatenate([words, new])
            found = np.concatenate([values, means])
        remove(folder)
        save_npy(folder, "words.npy", found_words)
        _keep(folder, "in.npy", found)
        if self.context is not None:
            context = self.context[chosen]
            if not np.isfinite(context).all():
                raise InputError(
                    f"{self.path / CONTEXT} has NaN or infinite values",
                    expected="finite numbers",
                    remedy="Train again with a lower learning rate",
                )
            save_npy(folder, "context_words.npy", words)
            _keep(folder, "out.npy", context)


def _keep(folder: Path, name: str, values: Array) -> None:
    """Write vectors, or link their file if they are all of it."""
    file = getattr(values, "filename", None)
    if file is None:
        save_npy(folder, name, np.asarray(values, np.float32))
    else:
        link(Path(file), folder / name)


def neighbour_means(graph: Graph, initialised: Array, values: Array) -> tuple[Array, Array]:
    """Return the new nodes with initialised neighbours, and the means of these neighbours."""
    row = np.full(graph.num_nodes, -1, np.int64)
    row[initialised] = np.arange(len(initialised))
    csr = graph.csr()
    indptr = np.asarray(csr.indptr)
    nodes: list[Array] = []
    means: list[Array] = []
    new = np.flatnonzero(row < 0)
    for at in range(0, len(new), _NODES):
        some = new[at : at + _NODES]
        begin, degrees = indptr[some], indptr[some + 1] - indptr[some]
        ends = row[np.asarray(csr.indices[ranges(begin, degrees)])]
        owner = np.repeat(np.arange(len(some)), degrees)[ends >= 0]
        count = np.bincount(owner, minlength=len(some))
        there = np.flatnonzero(count)
        if not len(there):
            continue
        sums = np.add.reduceat(values[ends[ends >= 0]], np.cumsum(count[there]) - count[there])
        nodes.append(some[there])
        means.append((sums / count[there, None]).astype(np.float32))
    if not nodes:
        return np.empty(0, np.int64), np.empty((0, values.shape[1]), np.float32)
    return np.concatenate(nodes), np.concatenate(means)
