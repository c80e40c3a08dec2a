"""Initial vectors: each depends on the seed and the node, not on partitions."""

from __future__ import annotations

import math

import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.kernels.cpu.uniform_rows import uniform_rows
from penstock.kernels.embed_rules import EmbedRules, Model
from penstock.kernels.streams import Stream
from penstock.threads import spread

_ROWS = 1 << 14  # nodes that a thread draws at a time
DEVICE_BYTES = 64 << 20  # bytes of vectors that a GPU draws at a time
_NODES, _RELATIONS = 0, 1  # the ``step`` of draws


def fill_nodes(seed: int, nodes: Array, out: AnyArray, scale: float) -> None:
    """Fill ``out[: len(nodes)]`` with the initial vectors of nodes, and the rest with 0.

    Values are uniform with standard deviation ``scale``.
    """
    factor = np.float32(scale * math.sqrt(3))
    if not isinstance(out, np.ndarray):
        _fill_on_device(seed, nodes, out, factor)
        return

    def fill(first: int) -> None:
        some = nodes[first : first + _ROWS]
        rows = uniform_rows(seed, Stream.EMBED_INIT, some, out.shape[1], _NODES)
        np.multiply(rows, factor, out=out[first : first + len(rows)])

    spread(fill, range(0, len(nodes), _ROWS))
    out[len(nodes) :] = 0


def _fill_on_device(seed: int, nodes: Array, out: DeviceArray, factor: np.float32) -> None:
    import cupy as cp

    from penstock.kernels.cuda.uniform_rows import uniform_rows as drawn

    rows = max(1, DEVICE_BYTES // (4 * out.shape[1]))
    for first in range(0, len(nodes), rows):
        some = cp.asarray(nodes[first : first + rows])
        numbers = drawn(seed, Stream.EMBED_INIT, some, out.shape[1], _NODES)
        cp.multiply(numbers, factor, out=out[first : first + len(some)])
    out[len(nodes) :] = 0


def relation_rows(seed: int, rules: EmbedRules, relations: int, scale: float) -> Array:
    """Return initial vectors of relations, of their inverses, and shared ones: phases between -pi
    and pi, or values as for nodes."""

    count = (2 * relations if rules.inverse else relations) + rules.shared_rows
    which = np.arange(count, dtype=np.int64)
    rows = uniform_rows(seed, Stream.EMBED_INIT, which, rules.relation_width, _RELATIONS)
    spread_of = math.pi if rules.model == Model.ROTATE else scale * math.sqrt(3)
    rows *= np.float32(spread_of)
    return rows
