"""How the tiles of a batch are launched: which instance of a kernel, and how many blocks.

A group is a side and a chunk of the batch. In each group, tiles of queries meet its negatives and
tiles of negatives its queries; if that makes too few blocks, splits share the others of a tile.
Slices share the values of its rows: columns of sums for products, and for other distances the
values beyond ``WIDEST``, in thread block clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch_blocks, processors
from penstock.kernels.embed_rules import EmbedRules, Loss, Model

_PRODUCT_FILE, _DISTANCE_FILE = "embed/product", "embed/distance"
_SLICE = 128, 256  # columns of sums in registers, with 32 and with 16 rows per warp
_NARROW = 32, 4, 64  # for rows of 128 values: rows per warp, warps, and rows of a streaming tile
_DISTANCE_ROWS, _DISTANCE_THREADS = 64, 256  # those of distance.cu
_PRODUCT_BLOCKS, _DISTANCE_BLOCKS = 2, 2  # that a multiprocessor runs at once
_STAGES = 3  # of product.cu
NOTE, WEIGHTS = 16, 16  # bytes of notes.cuh's Note and of batch_edges.cuh's RowWeights
WIDEST = 512  # values of a row: tiles of rows are in shared memory, whole
_SLICES = 8  # blocks of a cluster, a number that every GPU with clusters supports
_CLUSTERS = 90  # the first compute capability with thread block clusters
_SLICE_BYTES = 222_720  # the most shared memory of a block of a cluster
_GPC = 16  # least multiprocessors of a GPC: a cluster runs on one GPC


class Tiles:
    """How the tiles of a batch are launched: which instance, and how many blocks."""

    def __init__(
        self,
        rules: EmbedRules,
        edges: int,
        chunk: int,
        chunks: int,
        count: int,
        negative_sides: int,
    ) -> None:
        self.rules, self.edges, self.count = rules, edges, count
        self.chunk, self.chunks, self.negative_sides = chunk, chunks, negative_sides
        self.sides = len(rules.sides)
        self.width = self.packed_width(rules)
        self.product = is_product(rules)
        self.slices = 1 if self.product else distance_slices(rules.dim)
        parts = 2 if rules.is_complex else 1
        values = -(-(rules.dim // parts) // self.slices)  # of a slice
        self.pieces = pieces_of(values)
        if not self.product:
            self.file = _DISTANCE_FILE
            self.rows, self.others = _DISTANCE_ROWS, 64 if rules.dim <= _SLICE[1] else 32
            shape = f"{rules.model.name}, {self.pieces}, {self.others}, {rules.loss.name}, {{0}}"
            self.threads = _DISTANCE_THREADS
            stride = parts * values | 1
            words = (self.rows + self.others) * stride + self.others * (self.rows + 4) + self.rows
            if self.slices > 1:
                self._name = f"distance_slices<{shape}, {self.slices}{{1}}>"
                words += 2 * self.rows * self.others
            else:
                self._name = f"distance_tiles<{shape}{{1}}>"
            self.shared = 4 * (words + 2 * self.others)
            self.resident = _DISTANCE_BLOCKS if self.pieces <= 4 else 1
            return
        width = self.width
        rows_a_warp, warps, self.others, part = self.product_shape(width)
        self.file, self.slices = _PRODUCT_FILE, width // part
        shape = f"{width}, {part}, {rows_a_warp // 16}, {warps}, {self.others}"
        distance = str(rules.is_distance).lower()
        self._name = f"product_tiles<{shape}, {rules.loss.name}, {distance}, {{}}{{}}>"
        self.rows, self.threads = rows_a_warp * warps, 32 * warps
        self.resident = _PRODUCT_BLOCKS
        row = 16 * (width // 8 | 1)
        self.shared = self.rows * row + _STAGES * self.others * (row + NOTE)

    @staticmethod
    def packed_width(rules: EmbedRules) -> int:
        """Return the values of a row for tiles: those of products are padded with zeros."""
        if not is_product(rules):
            return rules.dim
        width = -(-rules.dim // 8) * 8
        return width if width <= _SLICE[1] else -(-width // 16) * 16

    @staticmethod
    def product_shape(width: int) -> tuple[int, int, int, int]:
        """Return rows per warp, warps, rows of a streaming tile, and columns of a slice.

        These fit into 227 KiB of shared memory and 255 registers per thread, with copies in flight.
        """
        if width <= _SLICE[0]:
            return *_NARROW, width
        if width <= _SLICE[1]:
            return 16, 4, 32, width
        return 16, 4, 32, width // 2

    def rows_of(self, count: int) -> DeviceArray:
        """Return memory for ``count`` rows in the format of tiles."""
        return cp.empty((count, self.width), cp.float16 if self.product else cp.float32)

    def loss_numbers(self) -> tuple[Any, Any, Any]:
        """Return margin, temperature, and a negative's share in the loss."""
        mean = self.rules.loss in (Loss.LOGISTIC, Loss.MARGIN)
        share = 1 / self.count if mean else 1.0
        return tuple(
            np.float32(number) for number in (self.rules.margin, self.rules.temperature, share)
        )  # type: ignore[return-value]

    def _staying(self, queries: bool) -> int:
        rows = min(self.chunk, self.edges) if queries else self.count
        return -(-rows // self.rows)

    def splits(self, *, queries: bool) -> int:
        """Return how many blocks share the others of a tile."""
        coming = self.count if queries else min(self.chunk, self.edges)
        most = -(-coming // (4 * self.others))  # a few tiles each, or starting costs more
        blocks = self.sides * self.chunks * self._staying(queries) * self.slices
        there = processors()
        if not self.product and self.slices > 1:
            there -= there % _GPC
        wanted = self.resident * there // max(blocks, 1)
        return max(1, min(most, wanted))  # fewer than can run at once: no block starts last

    def run(
        self,
        queries: bool,
        splits: int,
        rows: tuple[DeviceArray, ...],
        vectors: DeviceArray,
        sums: Any,
        weights: DeviceArray | None = None,
    ) -> None:
        """Launch the tiles in which queries stay, or those in which negatives stay.

        weights  of edges, if negatives stay: relative to the largest, which comes last
        """
        tiles = self._staying(queries)
        blocks = self.sides * self.chunks * splits * self.slices * tiles
        if not blocks:
            return
        launch_blocks(
            self.file,
            self._name.format(str(queries).lower(), "" if weights is None else ", true"),
            blocks,
            self.threads,
            *rows,
            *(np.int32(self.rules.dim), np.int64(self.edges), np.int64(self.chunk)),
            *(np.int32(self.chunks), np.int64(self.count), np.int32(self.sides)),
            *(np.int32(self.negative_sides), np.int32(splits), np.int32(tiles)),
            *(*self.loss_numbers(), weights, vectors, sums),
            shared=self.shared,
        )


@dataclass(frozen=True, eq=False)
class TiledBatch:
    """A batch whose queries meet negatives in tiles, as arguments of kernels.

    nodes, relations  rows of values, and their strides
    ends        heads, tails, relations and the distance to inverses
    head_sides  a bit for each side: whether heads are replaced
    weights     of edges, relative to the largest, which comes last; or None
    """

    nodes: tuple[Any, np.int64]
    relations: tuple[Any, np.int64]
    ends: tuple[Any, ...]
    negatives: DeviceArray
    tiles: Tiles
    head_sides: int
    weights: DeviceArray | None

    @property
    def of_nodes(self) -> tuple[Any, ...]:
        """Values of nodes, their stride and number."""
        return *self.nodes, np.int32(self.tiles.rules.dim)

    @property
    def of_edges(self) -> tuple[Any, ...]:
        """The ends of edges, and the numbers of edges and sides."""
        tiles = self.tiles
        return *self.ends, np.int64(tiles.edges), np.int32(tiles.sides), np.int32(self.head_sides)


def is_product(rules: EmbedRules) -> bool:
    """Return whether scores are computed from matrix products.

    Squares of L2 distances are, if tiles hold the rows: cuBLAS would write scores.
    """
    return not rules.is_distance or (rules.model == Model.TRANSE_L2 and rules.dim <= WIDEST)


def pieces_of(values: int) -> int:
    """Return a lane's number of values of a row, rounded up to a power of 2."""
    return 1 << max(-(-values // 32) - 1, 0).bit_length()


def distance_slices(dim: int) -> int:
    """Return how many blocks share rows of distances: a power of 2, so that few of a GPC idle."""
    return 1 << (-(-dim // WIDEST) - 1).bit_length()


def widest_distance() -> int:
    """Return the widest row, for models whose scores are distances, on this GPU.

    Desktop GPUs newer than Hopper have clusters, but less shared memory.
    """
    device = cp.cuda.Device().id
    in_slices = _capability(device) >= _CLUSTERS and _shared_bytes(device) >= _SLICE_BYTES
    return WIDEST * (_SLICES if in_slices else 1)


@cache
def _capability(device: int) -> int:
    return int(cp.cuda.Device(device).compute_capability)


@cache
def _shared_bytes(device: int) -> int:
    return int(cp.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])
