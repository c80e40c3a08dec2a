"""The floor of an epoch: the least time of gathering and multiplying at measured rates.

A gather reads one row per index, and the indices; a product multiplies. The rest of an epoch (ReLU,
loss, Adam, writing results) is not counted. On the CPU rows come at the rate of reading arrays of
the table's size, on a GPU from its L2 or its memory. An epoch can beat this floor if a GPU's L1
serves rows, or if operands of products stay in its L2.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from gnn_rates import GpuRates, product_rate, read_rate
from graphs import Data


class Gather(NamedTuple):
    """Rows of ``width`` floats, read for ``count`` 32-bit indices from ``table`` rows."""

    count: int
    width: int
    table: int


class Product(NamedTuple):
    """A layer's product: two of nodes x inputs, inputs x outputs, nodes x outputs give one."""

    nodes: int
    inputs: int
    outputs: int


class Work(NamedTuple):
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
    seconds = sum(2.0 * n * a * b for n, a, b in work.products) / product_rate(threads)
    for count, width, table in work.gathers:
        rate = read_rate(max(4 * table * width, 1 << 16), threads)
        seconds += 4 * count * width / rate + 4 * count / memory
    return seconds


def gpu_floor(work: Work, rates: GpuRates) -> float:
    """Return the least seconds of reading rows and indices, and of the products, on a GPU.

    Of the accesses, those to the most popular share s of sources are sqrt(s): see power_law. The L2
    holds those, and memory gives the rest. A product takes its operations or the bytes of its two
    inputs and its output, whichever takes longer.
    """
    seconds = 0.0
    for count, width, table in work.gathers:
        hits = min(1.0, rates.cache_size / (4 * table * width)) ** 0.5
        seconds += 4 * count * width * (hits / rates.cache + (1 - hits) / rates.memory)
        seconds += 4 * count / rates.memory
    for n, a, b in work.products:
        moved = 4 * (n * a + a * b + n * b)
        seconds += max(2.0 * n * a * b / rates.flops, moved / rates.memory)
    return seconds
