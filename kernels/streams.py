"""Purposes of random numbers: the second word of every Philox draw.

Two purposes never share numbers, because each has its own stream. Numbers decide results: never
renumber, only append. 22 and 51 belonged to removed uses, and stay free.
"""

from __future__ import annotations

from enum import IntEnum


class Stream(IntEnum):
    """One purpose each."""

    PERMUTE_NODES = 1
    SPLIT_NODES = 2
    SPLIT_EDGES = 3
    RMAT_EDGE = 10
    RMAT_WEIGHT = 11
    RMAT_RELATION = 12
    RMAT_LABEL = 13
    RMAT_SCRAMBLE = 14
    SBM_EDGE = 20
    SBM_FEATURE = 21
    KG_EDGE = 30
    KG_FACTOR = 31
    ZOO_SHAPE = 40
    ZOO_EDGE = 41
    PARTITION_RANDOM = 50
    WALK_STEP = 60
    WALK_STOP = 61
    WALK_START = 62
    GNN_WEIGHT = 70
    GNN_DROPOUT = 71
    GNN_ATTENTION = 72
    GNN_FEATURE = 73
    WORD2VEC_SAMPLE = 80
    WORD2VEC_NEGATIVE = 81
    WORD2VEC_INIT = 82
    WORD2VEC_POOL = 83
    EMBED_INIT = 90
    EMBED_NEGATIVE = 91
    EMBED_SHUFFLE = 92
    EMBED_CANDIDATE = 93
