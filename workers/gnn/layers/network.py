"""A model on one rank: its layers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Graded
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.data.features import as_dense, as_sparse
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.halo.gradients import GradientReducer
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.conv import Conv
from penstock.workers.gnn.layers.gat import GATConv
from penstock.workers.gnn.layers.gcn import GCNConv
from penstock.workers.gnn.layers.gin import GINConv
from penstock.workers.gnn.layers.inputs import Dense, Features, SparseFeatures
from penstock.workers.gnn.layers.norms import BatchNorm
from penstock.workers.gnn.layers.parameters import Parameters
from penstock.workers.gnn.layers.sage import SAGEConv, SAGEMaxConv
from penstock.workers.gnn.plan.lowering import LayerPlan, ModelPlan
from penstock.workers.gnn.plan.spec import Training
from penstock.workers.gnn.thread_pool import ThreadPool, even_cuts

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


class Network:
    """The layers of a plan over one rank's rows.

    network = Network(plan, training, local, pool, comm)
    logits = network.forward(epoch=3, training=True)
    network.backward(gradient_of_logits) # parameters.gradients: of this rank's rows
    network.reducer.wait()               # of all ranks
    """

    def __init__(
        self,
        plan: ModelPlan,
        training: Training,
        local: LocalGraph,
        pool: ThreadPool,
        comm: AnyCommunicator,
        *,
        clock: Clock | None = None,
        dtype: DTypeLike = np.float32,
        device: bool = False,
    ) -> None:
        self.local, self.clock = local, clock or Clock()
        self.convs = [_conv(layer) for layer in plan.layers]
        entries = [entry for conv in self.convs for entry in conv.entries()]
        self.parameters = Parameters(entries, dtype, training.seed, device=device)
        # With NCCL the GPU waits for messages, and the host continues to launch.
        how: dict[str, Any] = {"overlap": training.overlap, "clock": self.clock}
        how["wait_for"] = comm.follow if device else comm.wait
        self.halo, self.reducer = Halo(comm, local, pool, **how), GradientReducer(comm, **how)
        self.context = Context(
            local,
            self.parameters,
            self.halo,
            self.reducer,
            pool,
            self.clock,
            comm,
            self.parameters.values[:0],
            training.seed,
            training.precision if device else "fp32",
        )
        pool.tf32 = training.precision != "fp32"
        if comm.size > 1 and training.overlap and not device:
            pool.progress = self.progress
        self.features = self._features(plan, local, dtype)
        for conv in self.convs:
            conv.prepare(self.context)

    def synchronize(self) -> None:
        """Return when this rank's GPU, if any, has completed its work.

        With other ranks it also waits for their messages, and raises if the gang ends.
        """
        if self.context.on_gpu:
            self.context.comm.synchronize()

    def progress(self) -> None:
        """Make progress on messages; called between pieces of computation."""
        self.halo.test()
        self.reducer.test()

    def exchange(
        self,
        *,
        overlap: bool,
        skip_exchange: bool = False,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Set how ranks exchange from now on; the same on all, between two passes.

        overlap    compute meanwhile; without it, wait for each exchange at once
        skip_exchange  exchange nothing: results are useless except for their timing
        before     called before each exchange
        """
        for one in (self.halo, self.reducer):
            one.overlap, one.skip_exchange, one.before = overlap, skip_exchange, before

    def forward(self, *, epoch: int = 0, training: bool = False) -> AnyArray:
        """Return the owned nodes' outputs; the next pass overwrites them."""
        self.context.begin(epoch, training=training)
        self.features.renew()
        self._inputs: list[Dense] = [self.features]
        for conv in self.convs:
            out = conv.forward(self._inputs[-1])
            self._inputs.append(Dense(self.context, out))
        return out[: self.local.owned]

    def backward(self, grad: AnyArray) -> None:
        """Fill ``parameters.gradients`` from the gradient of ``forward``'s result."""
        for conv, given in zip(reversed(self.convs), reversed(self._inputs[:-1]), strict=True):
            back = conv.backward(grad, given)
            if back is not None:  # the first conv returns none
                grad = back

    def gradient_buffer(self) -> AnyArray:
        """Return memory for the gradient of the outputs."""
        conv = self.convs[-1]
        return self.context.buffers.scratch(self.local.owned, conv.width)

    def last_hidden(self) -> AnyArray:
        """Return the input of the last conv: the embedding of every owned node."""
        if len(self.convs) == 1:  # the features, which may be sparse or released
            return as_dense(self.local.features)
        return self._inputs[-2].dense()[: self.local.owned]

    @property
    def bytes(self) -> int:
        """The size of the matrices of all convs."""
        return self.context.buffers.bytes

    # Checkpoint data besides parameters

    def moments(self) -> dict[str, AnyArray]:
        """Return the running moments of batch norms, by name."""
        return {
            f"{conv.prefix}.running": conv.norm.running
            for conv in self.convs
            if isinstance(conv.norm, BatchNorm)
        }

    def _features(
        self, plan: ModelPlan, local: LocalGraph, dtype: DTypeLike
    ) -> Features | SparseFeatures:
        context = self.context
        if plan.sparse:
            block = as_sparse(local.features)
            moved = type(block)(
                context.put(block.indptr),
                context.put(block.indices),
                block.columns,
                context.put(np.asarray(block.weights, dtype)),
            )
            return SparseFeatures(context, moved, plan.input_dropout)
        dense = np.asarray(as_dense(local.features), dtype)
        return Features(context, dense, plan.input_dropout)


def _conv(plan: LayerPlan) -> Conv:
    if plan.layer.kind == "sage" and plan.layer.aggregate == "max":
        return SAGEMaxConv(plan)
    kinds = {"gcn": GCNConv, "sage": SAGEConv, "gin": GINConv, "gat": GATConv}
    return kinds[plan.layer.kind](plan)


class Loss:
    """The loss of a training run, with its score on every split, in one pass over the outputs."""

    def __init__(self, kind: str, network: Network, terms: int) -> None:
        self.kind, self.network, self.terms = kind, network, terms
        local, put = network.local, network.context.put
        self._splits = put(local.counted)
        names: dict[str, DTypeLike] = {"class": np.int32, "value": network.parameters.values.dtype}
        if local.label_kind == "multi":
            self._truth: tuple[AnyArray, ...] = tuple(put(array) for array in local.labels[:2])
        else:
            self._truth = (put(np.asarray(local.labels, names[str(local.label_kind)])),)

    def __call__(self, outputs: AnyArray, grad: AnyArray | None = None) -> AnyArray:
        """Return (3, 4) sums of this rank's rows; write the gradient to ``grad`` if given."""
        context, module = self.network.context, kernel("loss", outputs)
        work = {
            "cross_entropy": module.cross_entropy,
            "binary": module.binary_cross_entropy,
            "squared": module.squared_error,
        }[self.kind]
        sums = np.zeros_like(outputs, shape=(3, 4), dtype=np.float64)
        scale = 1 / max(self.terms, 1)
        cuts = even_cuts(0, len(outputs), 8 * outputs.shape[1], whole=context.on_gpu)

        def add(first: int, last: int, part: AnyArray) -> None:
            rows = Graded(outputs, self._splits, scale, grad, part)
            work(rows, *self._truth, first, last)

        with self.network.clock.span("loss", "compute"):
            context.pool.sums(cuts, sums, add)
        return sums
