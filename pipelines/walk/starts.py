"""The starts of walks: every node, a share of them, or named ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.csr import id_dtype
from penstock.errors import InputError, UsageError
from penstock.files import save_npy
from penstock.graph import Graph
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import MAX_WALKS, WALK_BITS
from penstock.pipelines.tables.columns import cast_or_null
from penstock.pipelines.tables.read import read_ids
from penstock.pipelines.tables.sources import format_of
from penstock.pipelines.walk.options import WalkingOptions
from penstock.workers.walk.starts import Starts

if TYPE_CHECKING:
    import pyarrow as pa

STARTS = "starts.npy"  # in the scratch folder
_CHUNK = 1 << 22


def named(options: WalkingOptions) -> bool:
    """Return whether the user named the starts."""
    return bool(options.start) or options.starts is not None


def kept_starts(listed: Array | None, nodes: int, folder: Path, named: bool) -> Starts:
    """Return starts for tasks: every node, or ids in a file of ``folder``."""
    if listed is None:
        return Starts(nodes, nodes)
    if not len(listed):
        raise UsageError("no walk has a start", remedy="Name starts, or use a larger --fraction")
    save_npy(folder, STARTS, listed)
    return Starts(len(listed), nodes, folder / STARTS, named)


def checked_count(starts: int, walks: int, nodes: int) -> int:
    """Return the number of walks, ``walks`` of each start; raise UsageError if a run cannot number
    them.
    """
    if (max(starts, nodes) - 1).bit_length() + (walks - 1).bit_length() > WALK_BITS:
        raise UsageError(
            f"{walks:,} walks of each of {starts:,} starts are too many",
            expected=f"{MAX_WALKS:,} at most in one run, with both numbers rounded up to powers of "
            "two",
        )
    return starts * walks


def listed_starts(graph: Graph, options: WalkingOptions) -> Array | None:
    """Return internal ids of the starts, or None for every node."""
    if options.fraction is not None:
        return share(graph.num_nodes, options.fraction, options.seed)
    if options.starts is not None:
        return _known(graph, *_read(options.starts), options.starts)
    if options.start:
        import pyarrow as pa

        return _known(graph, pa.array(options.start), range(1, len(options.start) + 1), None)
    return None


def share(nodes: int, fraction: float, seed: int) -> Array:
    """Draw each node independently, so that a larger fraction has the starts of a smaller one."""
    from penstock.kernels.cpu.philox import random_words

    below, chosen = round(fraction * 2**32), []
    for first in range(0, nodes, _CHUNK):
        count = min(_CHUNK, nodes - first)
        words = random_words(seed, Stream.WALK_START, first, count)[:, 0]
        chosen.append(first + np.flatnonzero(words.astype(np.uint64) < below))
    return np.concatenate([np.empty(0, np.int64), *chosen]).astype(id_dtype(nodes))


def _read(path: Path) -> tuple[pa.Array, Any]:
    """Return the ids of a file, and the line or row of each."""
    import pyarrow.compute as pc

    if not path.is_file():
        raise InputError(f"the file of starts {path} does not exist")
    ids = read_ids(str(path))
    if format_of(str(path)) in ("parquet", "arrow"):
        return ids, range(1, len(ids) + 1)
    ids = pc.utf8_trim_whitespace(ids)
    rows = np.flatnonzero(as_numpy(pc.not_equal(ids, "")))
    return ids.take(as_arrow(rows)), rows + 1


def _known(graph: Graph, ids: pa.Array, lines: Any, path: Path | None) -> Array:
    """Return the internal ids; the error names an unknown one and its line."""
    if not len(ids):
        raise InputError(f"{path} names no start", expected="one id per line")
    found = graph.internal_ids(cast_or_null(ids, graph.node_column("id").type))
    refuse_unknown(
        graph,
        found,
        lambda at: (
            f"{str(ids[at])!r}: "
            + (f"--start {ids[at]}" if path is None else f"line {lines[at]} of {path}")
        ),
    )
    return found.astype(id_dtype(graph.num_nodes))


def refuse_unknown(graph: Graph, found: Array, shown: Callable[[int], str]) -> None:
    """Raise InputError if an id is no node's.

    found  the nodes of ids, -1 for an unknown one
    shown  returns an id by its position, and where it is
    """
    unknown = np.flatnonzero(found < 0)
    if len(unknown):
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        raise InputError(
            f"{graph.path} has no node {shown(int(unknown[0]))}{more}",
            expected=f"ids of the graph, of type {graph.node_column('id').type}",
            remedy="Name the graph that has them, or drop unknown ids",
        )
