"""``--candidates``: the ids that may be answers: of a type or a label of a graph, or of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError, UsageError, warn
from penstock.graph import Graph
from penstock.pipelines.tables.read import read_ids
from penstock.pipelines.vectors.vectors import find_ids
from penstock.sizes import plural

if TYPE_CHECKING:
    import pyarrow as pa

OF_GRAPH = ("type", "label")
_SHOWN = 10  # unknown ids


def mask_of(given: str, ids: pa.Array, graph: Callable[[], Graph]) -> Array:
    """Return whether each node is a candidate.

    ids    of all nodes
    graph  returns the one whose types and labels are meant
    """
    kind, _, name = given.partition(":")
    if kind in OF_GRAPH:
        mask = (_of_type if kind == "type" else _of_label)(graph(), name)
    else:
        mask = np.zeros(len(ids), bool)
        mask[rows_of_file(Path(given), ids)] = True
    if not mask.any():
        raise InputError(f"--candidates {given} matches no node", expected="one node or more")
    return mask


def rows_of_file(path: Path, ids: pa.Array) -> Array:
    """Return the rows of the ids in a file, ascending; ids that are unknown are a warning."""
    if not path.is_file():
        raise UsageError(
            f"{path} does not exist",
            expected="a file of ids, or another value that the help names",
        )
    wanted = read_ids(str(path))
    found = find_ids(ids, wanted)
    unknown = wanted.filter(as_arrow(found < 0))
    if len(unknown) == len(wanted):
        raise InputError(f"{path} has no id that is known", expected="one id or more")
    if len(unknown):
        names = ", ".join(map(str, unknown[:_SHOWN].to_pylist()))
        warn(f"{path} has {plural(len(unknown), 'id')} that are unknown, such as {names}")
    return np.unique(found[found >= 0])


def _of_type(graph: Graph, name: str) -> Array:
    import pyarrow.compute as pc

    if name not in (graph.manifest.types or {}):
        raise InputError(
            f"{graph.path} has no nodes of type {name!r}",
            expected=f"one of {', '.join(graph.manifest.types or {}) or 'none: it has no types'}",
        )
    return as_numpy(pc.equal(graph.node_column("type"), name).combine_chunks())


def _of_label(graph: Graph, name: str) -> Array:
    import pyarrow.compute as pc

    classes = graph.manifest.classes or ()
    if name not in classes:
        raise InputError(
            f"{graph.path} has no label {name!r}",
            expected=f"one of {', '.join(classes[:_SHOWN]) or 'none: it has no classes'}",
        )
    labels, number = graph.node_column("label").combine_chunks(), classes.index(name)
    if graph.manifest.labels != "multi":
        return as_numpy(pc.fill_null(pc.equal(labels, number), False))
    mask = np.zeros(graph.num_nodes, bool)
    of, flat = pc.list_parent_indices(labels), pc.list_flatten(labels)
    mask[as_numpy(of)[as_numpy(pc.equal(flat, number))]] = True
    return mask
