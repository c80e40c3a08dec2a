"""Random and hashed parts: structure is ignored, every edge is equally likely to be cut."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.graph import Graph
from penstock.kernels.streams import Stream

_CHUNK = 1 << 20


def random_parts(nodes: int, k: int, seed: int) -> Array:
    """Return a random part for each node, all parts of equal size (plus or minus one)."""
    from penstock.kernels.cpu.philox import random_keys

    order = np.argsort(random_keys(seed, Stream.PARTITION_RANDOM, 0, nodes), kind="stable")
    parts = np.empty(nodes, np.int32)
    parts[order] = np.arange(nodes, dtype=np.int64) * k // max(nodes, 1)
    return parts


def hashed_parts(graph: Graph, k: int, seed: int) -> Array:
    """Return a part for each node by its user's id: an id has the same part in any graph."""
    import pandas as pd

    from penstock.kernels.cpu.philox import random_words_of

    parts = np.empty(graph.num_nodes, np.int32)
    ids = graph.node_column("id")
    for start in range(0, graph.num_nodes, _CHUNK):
        piece = ids.slice(start, _CHUNK)
        keys = pd.util.hash_pandas_object(pd.Series(piece.to_pandas()), index=False).to_numpy()
        words = random_words_of(seed, Stream.PARTITION_RANDOM, keys, 1)[:, 0]
        # The upper bits of a product spread 32 random bits over k parts without a modulo's bias.
        parts[start : start + len(piece)] = (words.astype(np.uint64) * np.uint64(k)) >> np.uint64(
            32
        )
    return parts
