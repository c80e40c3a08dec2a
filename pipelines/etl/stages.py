"""The stages of ``penstock etl`` in order: read, number nodes, make rows, write node data.

Every stage is a set of independent Dask tasks; what one leaves on disk the next reads. The client
holds a few numbers a node; edges stay with the workers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.streams import Stream
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.data import NodeResult, write_node_data
from penstock.pipelines.etl.nodes.number import encode, merge
from penstock.pipelines.etl.reading.batch import Piece
from penstock.pipelines.etl.run import EtlRun, with_files
from penstock.pipelines.etl.writing.make_rows import build
from penstock.sizes import need_memory


def build_graph(run: EtlRun, pieces: dict[str, list[Piece]]) -> Manifest:
    """Write the graph into ``run.partial.result`` and return its manifest, not yet saved."""
    batches = encode(run, pieces)
    ids, table = merge(run, batches)
    if run.options.relabel == "random":
        need_memory(ids.count * 32, "the permutation of all nodes", remedy="Use --relabel sorted")
        keys = random_keys(run.options.seed, Stream.PERMUTE_NODES, 0, ids.count)
        ids.order = np.argsort(keys, kind="stable")
    graph, order = build(run, batches, ids, table)
    nodes = write_node_data(
        run.partial.result,
        ids.sorted_ids(),
        order,
        table,
        run.options,
        unsigned=run.layout.id_type == "uint64",
    )
    return with_nodes(graph, nodes)


def with_nodes(manifest: Manifest, nodes: NodeResult) -> Manifest:
    """Return the manifest with what was written about nodes."""
    return with_files(
        replace(
            manifest,
            features=nodes.features,
            feature_names=nodes.feature_names,
            labels=nodes.labels,
            classes=nodes.classes,
            splits=nodes.splits,
        ),
        nodes.files,
    )
