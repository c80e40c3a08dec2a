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
    job: EtlJob,
    ids: Ids,
    numbers: Array,
    at: Array,
    table: NodeTable | None,
    order: Array,
    manifest: Manifest,
) -> Manifest:
    """Write the base's nodes and features with the values that changed, as edges already are.

    numbers  (ids,) internal id of each id that was read: the base's, and then those of new nodes
    at       positions of those whose values are written: new ones, and those in the table
    order    (nodes,) that id of each node that stays
    """
    import pyarrow as pa

    assert job.base is not None
    base, before = job.base.graph, job.base.manifest
    tables, classes = [read_table(base.ids_file)], before.classes
    values: Any = None
    if len(at):
        folder = job.partial.scratch / "changed nodes"
        folder.mkdir(exist_ok=True)
        earlier = replace(manifest, classes=classes)
        made = write_node_data(job, folder, ids.named, at, table, earlier)
        more = read_table(folder / "nodes.parquet")
        tables.append(more.select(tables[0].column_names).cast(tables[0].schema))
        values, classes = Graph(folder, made).features() if before.features else None, made.classes
    # The row of each node among those of the base, followed by those that were made.
    rows = np.arange(max(before.nodes, int(numbers.max(initial=-1)) + 1))
    rows[numbers[at]] = before.nodes + np.arange(len(at))
    rows = rows[order]

    whole = pa.concat_tables(tables).take(pa.array(rows))
    splits = before.splits
    if splits:
        splits = count_splits(np.asarray(whole["split"].fill_null(-1)))
    types: dict[str, int] = {}
    if before.types:
        counts = {one["values"]: one["counts"] for one in whole["type"].value_counts().to_pylist()}
        kinds = dict.fromkeys([*before.types, *ids.named.count_types(at)])
        types = {kind: counts[kind] for kind in kinds if kind in counts}
    files = [write_table(job.partial.result, "nodes.parquet", [whole])]

    features = before.features
    if features is not None:

        def piece(start: int, stop: int) -> Any:
            wanted = rows[start:stop]
            order = np.argsort(wanted, kind="stable")
            old, new = np.split(wanted[order], [np.count_nonzero(wanted < before.nodes)])
            both = [base.features(old)]
            if len(new):
                both.append(values[new - before.nodes])
            return _stacked(both)[np.argsort(order)]

        result = job.partial.result
        features, written = write_feature_files(result, len(rows), features.width, piece)
        files += written
    job.counts.nodes_added = int(np.count_nonzero(numbers[at] >= before.nodes))
    job.counts.nodes_changed = len(at) - job.counts.nodes_added
    about = job.base.attributes | {"features": features, "classes": classes, "splits": splits}
    return replace(manifest, **about, types=types, times=before.times).with_files(files)


def _stacked(pieces: list[Any]) -> Any:
    """Return rows below each other, dense or SciPy CSR."""
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    import scipy.sparse as sp

    return sp.vstack(pieces, format="csr")
