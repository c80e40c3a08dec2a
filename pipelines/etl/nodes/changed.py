"""Nodes of yesterday's graph, some of which have new values, and new nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_table
from penstock.graph import Graph, count_splits
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.data import write_node_data
from penstock.pipelines.etl.nodes.input import NodeTable
from penstock.pipelines.etl.nodes.number import Ids
from penstock.writer import write_feature_files, write_table

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


def changed_nodes(
    job: EtlJob, ids: Ids, numbers: Array, at: Array, table: NodeTable | None, manifest: Manifest
) -> Manifest:
    """Write the base's nodes and features with the values that changed, as edges already are.

    numbers  (ids,) internal id of each id that was read
    at       positions of those whose values are written: new ones, and those in the table
    """
    import pyarrow as pa

    assert job.base is not None
    base, before = job.base.graph, job.base.manifest
    folder = job.partial.scratch / "changed nodes"
    folder.mkdir(exist_ok=True)
    earlier = replace(manifest, classes=before.classes)
    made = write_node_data(job, folder, ids.named, at, table, earlier)
    nodes = manifest.nodes
    # The row of each node among those of the base, followed by those that were made.
    rows = np.arange(nodes)
    rows[numbers[at]] = before.nodes + np.arange(len(at))

    old, more = read_table(base.ids_file), read_table(folder / "nodes.parquet")
    whole = pa.concat_tables([old, more.select(old.column_names).cast(old.schema)])
    whole = whole.take(pa.array(rows))
    splits = before.splits
    if splits:
        splits = count_splits(np.asarray(whole["split"].fill_null(-1)))
    files = [write_table(job.partial.result, "nodes.parquet", [whole])]

    features = before.features
    if features is not None:
        values: Any = Graph(folder, made).features()

        def piece(start: int, stop: int) -> Any:
            wanted = rows[start:stop]
            new = wanted >= before.nodes
            order = np.append(np.flatnonzero(~new), np.flatnonzero(new))
            both = [base.features(wanted[~new]), values[wanted[new] - before.nodes]]
            return _stacked(both)[np.argsort(order)]

        features, written = write_feature_files(job.partial.result, nodes, features.width, piece)
        files += written
    types, is_new = dict(before.types), numbers[at] >= before.nodes
    for kind, count in ids.named.count_types(at[is_new]).items():
        types[kind] = types.get(kind, 0) + count
    job.counts.nodes_added = int(is_new.sum())
    job.counts.nodes_changed = len(at) - job.counts.nodes_added
    about = job.base.attributes | {"features": features, "classes": made.classes, "splits": splits}
    return replace(manifest, **about, types=types, times=before.times).with_files(files)


def _stacked(pieces: list[Any]) -> Any:
    """Return rows below each other, dense or SciPy CSR."""
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    import scipy.sparse as sp

    return sp.vstack(pieces, format="csr")
