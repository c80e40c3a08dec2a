"""Shared by the layers of one rank: the adjacency, buffers, threads and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Dropout, ScaledCSR
from penstock.kernels.streams import Stream
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.halo.gradients import GradientReducer
from penstock.workers.gnn.layers.parameters import Parameters
from penstock.workers.gnn.thread_pool import ThreadPool, edge_cuts, even_cuts
from penstock.workers.resources.device import to_device

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_BELOW = 1 << 32


class Buffers:
    """Matrices by name, allocated once and reused every epoch; ``bytes`` is their total."""

    def __init__(self, like: AnyArray) -> None:
        self._like = like
        self._held: dict[str, AnyArray] = {}
        self._scratch: list[AnyArray] = []

    @property
    def bytes(self) -> int:
        """The total size."""
        return sum(int(a.nbytes) for a in (*self._held.values(), *self._scratch))

    def take(self, name: str, rows: int, width: int, dtype: DTypeLike | None = None) -> AnyArray:
        """Return the matrix of a name; it keeps its content."""
        if name not in self._held:
            self._held[name] = np.zeros_like(self._like, shape=(rows, width), dtype=dtype)
        return self._held[name]

    def scratch(self, rows: int, width: int, *used: AnyArray | None) -> AnyArray:
        """Return a matrix to write to that shares no memory with those ``used``."""
        for i, flat in enumerate(self._scratch):
            if any(_within(flat, other) for other in used if other is not None):
                continue
            if flat.size < rows * width:
                self._scratch[i] = flat = np.empty_like(self._like, shape=rows * width)
            return flat[: rows * width].reshape(rows, width)
        self._scratch.append(np.empty_like(self._like, shape=rows * width))
        return self._scratch[-1].reshape(rows, width)


def _within(flat: AnyArray, other: AnyArray) -> bool:
    start = _address(flat)
    return start <= _address(other) < start + int(flat.nbytes)


def _address(array: AnyArray) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


@dataclass(eq=False)
class Context:
    """One rank's adjacency, threads and messages, for all layers of a model."""

    local: LocalGraph
    parameters: Parameters
    halo: Halo
    reducer: GradientReducer
    pool: ThreadPool
    clock: Clock
    comm: AnyCommunicator
    like: AnyArray  # an empty array of the computing backend and type
    seed: int
    precision: str = "fp32"
    epoch: int = 0
    training: bool = True
    blocks: dict[tuple[str, str, float], ScaledCSR] = field(
        default_factory=dict
    )  # by kind of layer
    by_owner: tuple[ScaledCSR, ScaledCSR] | None = None  # edges to owned nodes, and to ghosts
    # The cuts of each block, with its indptr, which keeps the id valid.
    _cut: dict[tuple[int, int, int, int], tuple[AnyArray, list[int]]] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> Buffers:
        """The matrices of all layers."""
        return Buffers(self.like)

    @cached_property
    def ids(self) -> AnyArray:
        """The number of each column in the whole graph."""
        return self.put(self.local.ids)

    @cached_property
    def adjacency(self) -> ScaledCSR:
        """The CSR of the graph, edge weights included."""
        local = self.local
        weights = None if local.weights is None else self.put(local.weights.astype(self.like.dtype))
        return ScaledCSR(self.put(local.indptr), self.put(local.indices), local.columns, weights)

    @cached_property
    def _epoch_there(self) -> AnyArray | None:
        return np.zeros_like(self.like, shape=1, dtype=np.uint32) if self.on_gpu else None

    def begin(self, epoch: int, *, training: bool) -> None:
        """Set the epoch, which decides dropout in training."""
        self.training = training
        if epoch != self.epoch and self._epoch_there is not None:
            self._epoch_there.fill(epoch)
        self.epoch = epoch

    @property
    def alone(self) -> bool:
        """Whether this is the only rank."""
        return self.comm.size == 1

    def put(self, array: AnyArray) -> AnyArray:
        """Copy an array to this rank's device."""
        return array if isinstance(self.like, np.ndarray) else to_device(np.asarray(array))

    @property
    def on_gpu(self) -> bool:
        """Whether this rank computes on a GPU."""
        return not isinstance(self.like, np.ndarray)

    def narrows(self, width: int) -> bool:
        """Return whether rows of this many values are gathered as bfloat16."""
        return self.precision == "bf16" and width % 8 == 0

    def transpose(self, block: ScaledCSR) -> ScaledCSR:
        """Return the transpose (CSC) of a block over this rank's rows, computed once."""
        if self.local.symmetric:
            return block.as_own_transpose()
        transposed = self._transposed
        diagonal = block.diagonal
        if diagonal is not None:
            diagonal = np.zeros_like(diagonal, shape=self.local.columns)
            diagonal[: block.rows] = block.diagonal
        weights = transposed.weights if block.weights is not None else None
        return replace(
            transposed, weights=weights, left=block.right, right=block.left, diagonal=diagonal
        )

    @cached_property
    def _transposed(self) -> ScaledCSR:
        found: ScaledCSR = kernel("aggregate", self.like).transpose(self.adjacency)
        return found

    def drop(self, share: float, layer: int, stream: Stream = Stream.GNN_DROPOUT) -> Dropout | None:
        """Return the current dropout; None outside of training."""
        if not share or not self.training:
            return None
        below = round(share * _BELOW)
        return Dropout(
            self.seed,
            int(stream),
            self.epoch,
            layer,
            below,
            self.ids,
            self.local.nodes,
            self._epoch_there,
        )

    # Work, in pieces

    def rows(self, first: int, last: int, width: int, work: Callable[[int, int], object]) -> None:
        """Call ``work`` for pieces of rows of ``width`` values."""
        if last > first:
            self.pool.over(even_cuts(first, last, width, whole=self.on_gpu), work)

    def edges(
        self,
        block: ScaledCSR,
        first: int,
        last: int,
        width: int,
        work: Callable[[int, int], object],
    ) -> None:
        """Call ``work`` for pieces of a block's rows with about equal numbers of edges."""
        if last > first:
            self.pool.over(self._cuts(block, first, last, width), work)

    def add(self, a: AnyArray, b: AnyArray, out: AnyArray) -> AnyArray:
        """Write ``a + b`` to ``out``, which may be one of them, and return it."""

        def work(first: int, last: int) -> None:
            np.add(a[first:last], b[first:last], out=out[first:last])

        self.rows(0, len(out), out.shape[1], work)
        return out

    def column_sums(
        self, x: AnyArray, out: AnyArray, before: Callable[[int, int], object] | None = None
    ) -> None:
        """Write the sum of each column of rows that ``before(first, last)`` makes to ``out``."""
        module, width = kernel("norm", self.like), x.shape[1]
        sums = np.zeros_like(self.like, shape=width, dtype=np.float64)

        def work(first: int, last: int, part: AnyArray) -> None:
            if before is not None:
                before(first, last)
            module.column_sums(x, part, first, last)

        self.pool.sums(even_cuts(0, len(x), width, whole=self.on_gpu), sums, work)
        out[...] = sums

    def _cuts(self, block: ScaledCSR, first: int, last: int, width: int) -> list[int]:
        if self.on_gpu:
            return [first, last]
        key = (id(block.indptr), first, last, width)
        if key not in self._cut:
            self._cut[key] = block.indptr, edge_cuts(block.indptr, first, last, width)
        return self._cut[key][1]

    # Gathering across ranks

    def gather(
        self, x: AnyArray, work: Callable[[int, int], None], then: Callable[[int, int], None] | None
    ) -> None:
        """Fetch ghosts' rows of ``x`` while rows without ghosts are computed, then the others.

        ``work(first, last)`` computes rows, ``then(first, last)`` the next step on them.
        """
        local = self.local
        self.halo.start(x)
        for first, last in ((0, local.interior), (local.interior, local.owned)):
            if last == local.owned:
                self.halo.wait()
            if last > first:
                work(first, last)
                if then is not None:
                    then(first, last)

    def gather_backward(
        self,
        x: AnyArray,
        work: Callable[[int, int], None],
        of_ghosts: Callable[[], None] | None = None,
    ) -> None:
        """Compute the gradient ``x``: ghosts' rows first, which travel to their owners meanwhile.

        ``of_ghosts`` computes ghosts' rows instead of ``work``.
        """
        local = self.local
        if of_ghosts is not None:
            of_ghosts()
        elif local.columns > local.owned:
            work(local.owned, local.columns)
        self.halo.start_backward(x)
        work(0, local.owned)
        self.halo.wait_backward(x)
