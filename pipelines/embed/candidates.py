"""``--candidates``: nodes that may be answers and negatives, by a type, a label or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, read_column
from penstock.errors import InputError, UsageError, warn
from penstock.files import save_npy
from penstock.graph import Graph, load_npy
from penstock.pipelines.embed.options import ALL, BY_RELATION
from penstock.pipelines.embed.run import Run
from penstock.pipelines.tables.read import read_ids
from penstock.sizes import plural
from penstock.workers.embed.evaluation.candidates import Candidates
from penstock.workers.embed.warm import IDS

FILE = "candidates.npy"  # file in a run that was trained with candidates: one bit per node
_SHOWN = 10  # unknown ids


def mask_of(given: str, ids: Any, graph: Callable[[], Graph]) -> Array:
    """Return whether each node is a candidate.

    ids    of all nodes, as Arrow
    graph  returns the graph that has the types and labels
    """
    kind, _, name = given.partition(":")
    if kind == "type":
        mask = _of_type(graph(), name)
    elif kind == "label":
        mask = _of_label(graph(), name)
    else:
        mask = _of_file(Path(given), ids)
    if not mask.any():
        raise InputError(f"--candidates {given} matches no node", expected="one node or more")
    return mask


def keep_candidates(folder: Path, mask: Array) -> None:
    """Keep the candidates of a training in its run's folder."""
    save_npy(folder, FILE, np.packbits(mask))


def find_candidates(
    given: str | None, at: Path, run: Run, graph: Callable[[], Graph]
) -> Candidates | None:
    """Return the candidates for questions to a run: by default those of its training.

    If the training corrupts one side, only answers of that side are limited. None: all nodes.
    """
    if given is None and (at / FILE).is_file():
        kept = Candidates(run.nodes, load_npy(at / FILE).tobytes())
        return kept.limiting(run.training.corrupt)
    if given is None or given == ALL:
        return None
    if given == BY_RELATION:
        typed = run.relations is not None
        return Candidates(run.nodes, graph=graph().path, typed=typed)
    mask = mask_of(given, read_column(at / IDS, "id").combine_chunks(), graph)
    return Candidates.of(mask, run.training.corrupt)


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


def _of_file(path: Path, ids: Any) -> Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path.is_file():
        raise UsageError(
            f"{path} does not exist",
            expected="a file of ids, type:NAME, label:NAME, or another value that the help names",
        )
    wanted = read_ids(str(path)).cast(pa.string())
    found = pc.fill_null(pc.index_in(wanted, value_set=ids.cast(pa.string())), -1)
    unknown = wanted.filter(pc.equal(found, -1))
    if len(unknown):
        names = ", ".join(map(str, unknown[:_SHOWN].to_pylist()))
        warn(f"{path} has {plural(len(unknown), 'id')} that no node has, such as {names}")
    mask = np.zeros(len(ids), bool)
    mask[[number for number in as_numpy(found) if number >= 0]] = True
    return mask
