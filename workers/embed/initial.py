"""Initial vectors: each a function of the seed and the node, whatever the partitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.uniform_rows import uniform_rows
from penstock.kernels.embed_rules import EmbedRules, Model
from penstock.kernels.streams import Stream
from penstock.partition.threads import spread

_ROWS = 1 << 14  # that a thread draws at a time
_NODES, _RELATIONS = 0, 1  # the ``step`` of draws


def fill_nodes(seed: int, nodes: Array, out: Any, scale: float) -> None:
    """Fill ``out[: len(nodes)]`` with the initial vectors of nodes, and what is behind with 0.

    They are uniform, of standard deviation ``scale``.
    """
    factor = np.float32(scale * math.sqrt(3))

    def fill(first: int) -> None:
        some = nodes[first : first + _ROWS]
        rows = uniform_rows(seed, Stream.EMBED_INIT, some, out.shape[1], _NODES) * factor
        if isinstance(out, np.ndarray):
            out[first : first + len(rows)] = rows
        else:
            out[first : first + len(rows)].set(rows)

    pieces = range(0, len(nodes), _ROWS)
    spread(fill, pieces, None if isinstance(out, np.ndarray) else 1)
    out[len(nodes) :] = 0


def relation_rows(seed: int, rules: EmbedRules, relations: int, scale: float) -> Array:
    """Return initial vectors of relations, their inverses behind them: phases between -pi and pi,
    or as for nodes."""
    count = 2 * relations if rules.inverse else relations
    which = np.arange(count, dtype=np.int64)
    rows = uniform_rows(seed, Stream.EMBED_INIT, which, rules.relation_width, _RELATIONS)
    spread_of = math.pi if rules.model == Model.ROTATE else scale * math.sqrt(3)
    rows *= np.float32(spread_of)
    return rows
