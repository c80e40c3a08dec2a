"""A planted knowledge graph in Numba; names and meaning are naive/knowledge.py's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.generate_rules import cluster_start, stride, zipf_quantiles
from penstock.kernels.streams import Stream

__all__ = ["cluster_start", "splits", "stride", "triples", "zipf_quantiles"]

_EDGE, _SPLIT = int(Stream.KG_EDGE), int(Stream.SPLIT_EDGES)


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
    """Return heads, tails and relations of triples ``first .. first + count``: (count,) int32."""
    heads, tails, relations = (np.empty(count, np.int32) for _ in range(3))
    _triples(
        np.uint64(seed),
        entities,
        clusters,
        shifts,
        head_quantiles,
        relation_quantiles,
        stride(len(entities)),
        noise,
        first,
        heads,
        tails,
        relations,
    )
    return heads, tails, relations


@njit(cache=True, inline="always")
def _quantile(quantiles: Array, word: Any) -> Any:
    cell, rest = np.int64(word >> uint32(16)), np.int64(word & uint32(0xFFFF))
    low = quantiles[cell]
    return low + (((quantiles[cell + 1] - low) * rest) >> 16)


@njit(cache=True, nogil=True)
def _triples(
    seed: int,
    entities: Array,
    clusters: int,
    shifts: Array,
    head_quantiles: Array,
    relation_quantiles: Array,
    step: int,
    noise: int,
    first: int,
    heads: Array,
    tails: Array,
    relations: Array,
) -> None:
    n = len(entities)
    for i in range(len(heads)):
        a, b, c, d = philox4x32(seed, _EDGE, uint64(first) + uint64(i), 0)
        position = _quantile(head_quantiles, a) * step % n
        relation = _quantile(relation_quantiles, b)
        if np.int64(c) < noise:
            tail = (np.int64(d) * n) >> 32
        else:
            cluster = (position * clusters // n + shifts[relation]) % clusters
            begin = (cluster * n + clusters - 1) // clusters
            size = ((cluster + 1) * n + clusters - 1) // clusters - begin
            tail = begin + ((np.int64(d) * size) >> 32)
        heads[i], tails[i], relations[i] = entities[position], entities[tail], relation


@entry()
def splits(
    seed: uint64, heads: Array, tails: Array, relations: Array, valid: int, test: int
) -> Array:
    """Return 0, 1, 2 (train, valid, test) for each triple, independent of its draw: (m,) int8."""
    chosen = np.empty(len(heads), np.int8)
    for i in range(len(heads)):
        pair = uint64(uint32(heads[i])) << uint64(32) | uint64(uint32(tails[i]))
        word = uint64(philox4x32(seed, _SPLIT, pair, relations[i])[0])
        chosen[i] = np.int8(word < uint64(valid + test)) + np.int8(word < uint64(test))
    return chosen
