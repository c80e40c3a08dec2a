"""A planted knowledge graph: the reference for its triples, in NumPy.

Positions 0 .. n - 1 are on a ring cut into clusters. A relation turns the ring by its number of
clusters: the tail of (head, relation) is some entity of the cluster to which the head's cluster is
turned (RotatE's and ComplEx' picture of a relation). Heads and relations follow a Zipf law; a share
of the tails is noise.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.generate_rules import cluster_start, stride
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream


def triples(
    seed: int,
    entities: Array,
    clusters: int,
    shifts: Array,
    head_quantiles: Array,
    relation_quantiles: Array,
    noise: int,
    first: int,
    count: int,
) -> tuple[Array, Array, Array]:
    """Return heads, tails and relations of triples ``first .. first + count``: (count,) int32.

    entities   (n,) int32, the entity at each position of the ring
    shifts     (relations,) int32, clusters by which a relation turns the ring
    quantiles  from ``zipf_quantiles``
    noise      chance of a random tail, in 2**32
    """
    n = len(entities)
    which = np.arange(first, first + count, dtype=np.uint64)
    a, b, c, d = (w.astype(np.int64) for w in philox4x32(seed, Stream.KG_EDGE, which, 0))
    position = _quantile(head_quantiles, a) * stride(n) % n
    relation = _quantile(relation_quantiles, b)
    cluster = (position * clusters // n + shifts[relation]) % clusters
    begin = cluster_start(cluster, n, clusters)
    size = cluster_start(cluster + 1, n, clusters) - begin
    tail = np.where(c < noise, (d * n) >> 32, begin + ((d * size) >> 32))
    return entities[position], entities[tail], relation.astype(np.int32)


def splits(seed: int, heads: Array, tails: Array, relations: Array, valid: int, test: int) -> Array:
    """Return 0, 1, 2 (train, valid, test) for each triple, independent of its draw: (m,) int8.

    valid, test  chance in 2**32
    """
    pair = heads.astype(np.uint64) << np.uint64(32) | tails.astype(np.uint64)
    word = philox4x32(seed, Stream.SPLIT_EDGES, pair, relations)[0].astype(np.uint64)
    held, tested = word < np.uint64(valid + test), word < np.uint64(test)
    return held.astype(np.int8) + tested.astype(np.int8)


def _quantile(quantiles: Array, word: Array) -> Array:
    cell, rest = word >> 16, word & 0xFFFF
    low = quantiles[cell]
    rank: Array = low + (((quantiles[cell + 1] - low) * rest) >> 16)
    return rank
