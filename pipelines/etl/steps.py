"""The steps of ``penstock etl`` in order: read, number nodes, make rows, write node data.

Every step is a set of independent Dask tasks, which read what the step before left on disk. The
client holds a few numbers per node; edges stay with the workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.streams import Stream
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.data import write_node_data
from penstock.pipelines.etl.nodes.number import encode, merge
from penstock.pipelines.etl.writing.make_rows import build
from penstock.sizes import need_memory

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


def build_graph(job: EtlJob) -> Manifest:
    """Write the graph into ``job.partial.result`` and return its manifest, not yet saved."""
    batches = encode(job)
    ids, table = merge(job, batches)
    if job.options.relabel == "random":
        from penstock.kernels.cpu.philox import random_keys

        need_memory(ids.count * 32, "the permutation of all nodes", remedy="Use --relabel sorted")
        keys = random_keys(job.options.seed, Stream.PERMUTE_NODES, 0, ids.count)
        ids.order = np.argsort(keys, kind="stable")
    found = None
    if job.base is not None:
        found = job.base.find(ids.named)
        ids.base_ids = found if ids.order is None else found[ids.order]
    graph, order = build(job, batches, ids, table)
    if job.base is not None and found is not None:
        kept = int(np.count_nonzero((found if order is None else found[order]) >= 0))
        job.counts.nodes_added = graph.nodes - kept
        job.counts.nodes_gone = job.base.manifest.nodes - kept
    return write_node_data(job, job.partial.result, ids.named, order, table, graph)
