"""The floor of an epoch: the least time of gathering and multiplying at measured rates.

A gather reads one row per index, and the indices; a product multiplies. The rest of an epoch (ReLU,
loss, Adam, writing results) is not counted. On the CPU rows come at the rate of reading arrays of
the table's size, on a GPU from its L2 or its memory. An epoch can beat this floor if a GPU's L1
serves rows, or if operands of products stay in its L2.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from gnn_rates import GpuRates, product_rate, read_rate
from graphs import Data


@dataclass(frozen=True)
class Gather:
    """Rows of ``width`` floats, read for ``count`` 32-bit indices from ``table`` rows."""

    count: int
    width: int
    table: int

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows, each counted once per read."""
        return 4 * self.count * self.width

    @property
    def index_bytes(self) -> int:
        """Bytes of the indices."""
        return 4 * self.count

    @property
    def table_bytes(self) -> int:
        """Bytes of the table, each row once."""
        return 4 * self.table * self.width


@dataclass(frozen=True)
class Product:
    """A layer's product: two of nodes x inputs, inputs x outputs, nodes x outputs give one."""

    nodes: int
    inputs: int
    outputs: int

    @property
    def flops(self) -> float:
        """The number of floating point operations."""
        return 2.0 * self.nodes * self.inputs * self.outputs

    @property
    def stream_bytes(self) -> int:
        """Bytes of its two inputs and its output, each once."""
        nodes, inputs, outputs = self.nodes, self.inputs, self.outputs
        return 4 * (nodes * inputs + inputs * outputs + nodes * outputs)


@dataclass(frozen=True)
class Work:
    """The least work of an epoch."""

    gathers: list[Gather]
    products: list[Product]


def work_of(data: Data, widths: list[int]) -> Work:
    """Return the least work of an epoch.

    A layer gathers the narrower of its input and output, forward and back; the first, with dense
    features, not at all: what it gathers is the same in every epoch. Sparse features are gathered
    like edges, rows of weights and of gradients.
    """
    nodes, edges = data.csr.rows, data.csr.edges
    gathers, products = [], []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        product = Product(nodes, inputs, outputs)
        if number:
            gathers += [Gather(edges, min(inputs, outputs), nodes)] * 2
            products += [product] * 3  # forward, and gradients of the weights and of the inputs
        elif isinstance(data.features, np.ndarray):
            products += [product] * 2
        else:
            weights = Gather(data.features.nnz, outputs, inputs)
            gradients = Gather(data.features.nnz, outputs, nodes)
            gathers += [weights, gradients] + [Gather(edges, outputs, nodes)] * 2
    return Work(gathers, products)


def cores_floor(work: Work, threads: int) -> float:
    """Return the least seconds of reading rows and indices, and of the products, on the CPU."""
    memory = read_rate(256 << 20, threads)
    seconds = sum(product.flops for product in work.products) / product_rate(threads)
    for gather in work.gathers:
        rate = read_rate(max(gather.table_bytes, 1 << 16), threads)
        seconds += gather.row_bytes / rate + gather.index_bytes / memory
    return seconds


def gpu_floor(work: Work, rates: GpuRates) -> float:
    """Return the least seconds of reading rows and indices, and of the products, on a GPU.

    Of the accesses, those to the most popular share s of sources are sqrt(s): see power_law. The L2
    holds those, and memory gives the rest. A product takes its operations or its bytes, whichever
    takes longer.
    """
    seconds = 0.0
    for gather in work.gathers:
        hits = min(1.0, rates.cache_size / gather.table_bytes) ** 0.5
        seconds += gather.row_bytes * (hits / rates.cache + (1 - hits) / rates.memory)
        seconds += gather.index_bytes / rates.memory
    for product in work.products:
        seconds += max(product.flops / rates.flops, product.stream_bytes / rates.memory)
    return seconds
