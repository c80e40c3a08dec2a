"""Lowering: from a model and facts about the graph to a plan, layer by layer.

    plan = lower(model, facts, training, rates)
    print(plan.text())
    plan.memory_bytes                    # of one rank, at most

The client does this once, and sends the plan to all ranks. Predicted times decide: the order of
product and aggregation in every layer, whether the first aggregation is precomputed, and whether
features are dense or sparse (their sparsity against the machine's tau).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.sizes import format_bytes, format_count
from penstock.workers.gnn.plan.facts import Facts
from penstock.workers.gnn.plan.spec import Layer, Model, Training

_FLOAT = 4
if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates

TILE = 32  # features copied to a GPU at a time if only their aggregation is kept
Order = Literal["transform", "aggregate"]


# The purposes of a rank's memory, and their text.
_SHOWN = {
    "graph": "graph (CSR)",
    "transpose": "transposed graph (CSC)",
    "ghost_edges": "graph, edges to ghosts apart",
    "normalization": "normalization of edges",
    "features": "features",
    "activations": "saved activations",
    "gradients": "gradients of activations",
    "work": "work space of a layer",
    "bfloat16": "rows rounded to bfloat16",
    "halos": "halo buffers",
}


@dataclass(frozen=True)
class Operation:
    """One operation of an epoch: its cost and predicted time."""

    name: str
    flops: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class LayerPlan:
    """How one layer is computed."""

    layer: Layer
    number: int
    inputs: int
    order: Order
    precomputed: bool
    sparse: bool
    why: str
    operations: tuple[Operation, ...]

    @property
    def seconds(self) -> float:
        """The predicted time of an epoch."""
        return sum(each.seconds for each in self.operations)


@dataclass(frozen=True)
class ModelPlan:
    """The computation: layers in order, and the memory of one rank.

    Attributes
    ----------
    layers
        How each layer is computed: ``LayerPlan``, with its operations.
    facts
        Facts about the graph and its largest part.
    sparse
        Whether features are kept sparse.
    tau
        The share of zeros in features from which sparse ones are faster on this machine.
    memory
        Bytes of one rank, by purpose.
    rest
        Operations of an epoch that belong to no layer.
    backward
        Whether there is a backward pass; without one an epoch is a forward pass.
    input_dropout
        As the model declares it.

    Examples
    --------
    >>> plan = gnn.train.plan("g", "run", model="sage", layers=3).detail
    >>> plan.seconds, plan.memory_bytes
    >>> print(plan.text())
    """

    layers: tuple[LayerPlan, ...]
    facts: Facts
    sparse: bool
    tau: float
    memory: dict[str, int] = field(default_factory=dict)
    rest: tuple[Operation, ...] = ()
    backward: bool = True
    input_dropout: float = 0.0

    @property
    def memory_bytes(self) -> int:
        """The most memory of one rank, in bytes."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """The predicted time of an epoch."""
        return sum(layer.seconds for layer in self.layers) + sum(s.seconds for s in self.rest)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {
            **asdict(self),
            "seconds": self.seconds,
            "memory_bytes": self.memory_bytes,
            "sparsity": self.facts.sparsity,
        }

    def text(self) -> str:
        """Return readable lines: layers with their operations, then time and memory."""
        facts = self.facts
        where = "GPU" if facts.on_gpu else "CPU"
        counts = f"{format_count(facts.rows)} nodes, {format_count(facts.edges)} edges"
        share = f", the largest of {facts.ranks} parts" if facts.ranks > 1 else ""
        layout = "sparse" if self.sparse else "dense"
        lines = [
            f"{counts}{share}, on the {where}",
            f"features: {facts.features:,} wide, {facts.sparsity:.1%} zeros: {layout} layout "
            f"(this machine's tau is {self.tau:.2f})",
            "",
            f"{'':48}{'GFLOP':>9}{'GB':>9}{'ms':>9}",
        ]
        for layer in self.layers:
            lines.append(_title(layer))
            lines += map(_line_of, layer.operations)
        lines += map(_line_of, self.rest)
        passes = "an epoch" if self.backward else "the forward pass"
        lines.append(f"{f'predicted time of {passes}':<66}{self.seconds * 1e3:9.3g}")
        lines += ["", "memory of a rank"]
        for kind, size in self.memory.items():
            lines.append(f"  {_SHOWN[kind]:<48}{format_bytes(size):>12}")
        lines.append(f"  {'total':<48}{format_bytes(self.memory_bytes):>12}")
        return "\n".join(lines)


def _line_of(operation: Operation) -> str:
    shown = operation.name if len(operation.name) < 46 else f"{operation.name[:45]}…"
    costs = operation.flops / 1e9, operation.bytes / 1e9, operation.seconds * 1e3
    return f"  {shown:<46}" + "".join(f"{cost:9.3g}" for cost in costs)


def _title(plan: LayerPlan) -> str:
    layer = plan.layer
    kind = f"{layer.kind} {layer.aggregate}" if layer.kind == "sage" else layer.kind
    if layer.kind == "gat":
        kind = f"gat, {layer.heads} heads"
    order = f"{plan.order} first"
    once = ", precomputed" if plan.precomputed else ""
    why = f" ({plan.why})" if plan.why else ""
    return f"layer {plan.number + 1}: {kind}, {plan.inputs} to {layer.channels}: {order}{once}{why}"


def lower(
    model: Model, facts: Facts, training: Training, rates: Rates, *, backward: bool = True
) -> ModelPlan:
    """Return the plan of one rank; it depends only on its arguments.

    backward  False: no backward pass; layers are computed as in training
    """
    model = model.complete(facts.outputs)
    cost = _Cost(facts, rates)
    sparse = _sparse_layout(model, facts, training, rates)
    layers, inputs = [], facts.features
    for number, layer in enumerate(model.layers):
        first = number == 0
        layers.append(_layer(cost, layer, number, inputs, training, model, sparse=sparse and first))
        assert layer.channels is not None
        inputs = layer.channels
    memory = _memory(model, facts, layers, training, sparse=sparse)
    rest: tuple[Operation, ...] = (cost.stream("loss and its gradient", 2 * facts.rows * inputs),)
    if not backward:
        layers, memory, rest = [_forward(cost, plan) for plan in layers], _to_predict(memory), ()
    tau, drop = rates.tau, model.input_dropout
    return ModelPlan(tuple(layers), facts, sparse, tau, memory, rest, backward, drop)


def _sparse_layout(model: Model, facts: Facts, training: Training, rates: Rates) -> bool:
    if training.feature_layout == "dense" or model.layers[0].needs_dense(facts.features):
        return False
    if training.feature_layout == "auto":  # with sparse features the product comes first
        return training.order != "aggregate" and facts.sparsity >= rates.tau
    return True


class _Cost:
    def __init__(self, facts: Facts, rates: Rates) -> None:
        self.facts, self.rates = facts, rates

    def product(self, name: str, inputs: int, width: int, times: int) -> Operation:
        flops = 2.0 * self.facts.rows * inputs * width * times
        size = _FLOAT * self.facts.rows * (inputs + width) * times
        return Operation(name, flops, size, max(flops / self.rates.dense, size / self.rates.stream))

    def sparse_product(self, name: str, width: int, times: int) -> Operation:
        flops = 2.0 * self.facts.nonzeros * width * times
        size = (8 + _FLOAT * width) * self.facts.nonzeros * times
        return Operation(name, flops, size, flops / self.rates.sparse)

    def neighbours(self, name: str, width: int, times: float) -> Operation:
        facts = self.facts
        rows = _FLOAT * facts.edges * width * times
        indices = facts.index_bytes * facts.edges * times
        written = _FLOAT * facts.rows * width * times
        seconds = rows / self.rates.gather + (indices + written) / self.rates.stream
        return Operation(name, 2.0 * facts.edges * width * times, rows + indices + written, seconds)

    def halo(self, width: int, times: int) -> Operation | None:
        ghosts = self.facts.columns - self.facts.rows
        if not ghosts:
            return None
        size = _FLOAT * ghosts * width * times
        seconds = size / self.rates.exchange + times * self.rates.latency
        return Operation("halo exchange (overlaps interior rows)", 0, size, seconds)

    def stream(self, name: str, values: float) -> Operation:
        return Operation(name, values, _FLOAT * values, _FLOAT * values / self.rates.stream)


def _layer(
    cost: _Cost,
    layer: Layer,
    number: int,
    inputs: int,
    training: Training,
    model: Model,
    *,
    sparse: bool,
) -> LayerPlan:
    first = number == 0
    precomputable = first and training.precompute and not model.input_dropout and not sparse
    known: list[tuple[Order, str]] = [("transform", ""), ("aggregate", "")]
    if layer.kind == "gat":
        known = [("transform", "attention scores are of the product")]
    elif sparse:
        known = [("transform", "sparse features: the product is dense and narrow")]
    elif not layer.is_linear:
        known = [("aggregate", "a maximum does not commute with a product")]
    elif training.order != "auto":
        known = [(training.order, "--order")]
    found = []
    for order, why in known:
        precomputed = precomputable and order == "aggregate"
        operations = _operations(
            cost, layer, inputs, order, first=first, precomputed=precomputed, sparse=sparse
        )
        found.append(LayerPlan(layer, number, inputs, order, precomputed, sparse, why, operations))
    # All epochs share the cost of precomputing.
    once = cost.neighbours("", inputs, 1).seconds / training.epochs
    best, *others = sorted(found, key=lambda plan: plan.seconds + once * plan.precomputed)
    if not others:
        return best
    other = others[0]
    reason = f"{_ms(best.seconds)} instead of {_ms(other.seconds)} per epoch"
    return replace(best, why=reason)


def _forward(cost: _Cost, plan: LayerPlan) -> LayerPlan:
    """Return a layer's plan without its backward pass; epoch times no longer apply."""
    operations = _operations(
        cost,
        plan.layer,
        plan.inputs,
        plan.order,
        first=plan.number == 0,
        precomputed=False,  # the single pass aggregates
        sparse=plan.sparse,
        backward=False,
    )
    return replace(plan, why="", operations=operations)


def _to_predict(memory: dict[str, int]) -> dict[str, int]:
    """Return the memory of a forward pass: a layer works in a gradient matrix."""
    found = dict(memory)
    if gradients := found.pop("gradients", 0):
        found["work"] = gradients - gradients // 2
    return found


def _operations(
    cost: _Cost,
    layer: Layer,
    inputs: int,
    order: Order,
    *,
    first: bool,
    precomputed: bool,
    sparse: bool,
    backward: bool = True,
) -> tuple[Operation, ...]:
    assert layer.channels is not None
    width = layer.channels if layer.concat else layer.channels * layer.heads
    inner = (layer.hidden or layer.channels) if layer.kind == "gin" else width
    # Forward, the weight's gradient, and, except in the first layer, the input's.
    every = 3 if backward else 1
    times = min(every, 2) if first else every
    both = ", and backward" * backward
    products = 2 if layer.kind == "sage" else 1
    if sparse:
        operations: list[Operation | None] = [
            cost.sparse_product(
                f"sparse product with weights{both}", inner, (1 + backward) * products
            )
        ]
    else:
        operations = [cost.product(f"product with weights{both}", inputs, inner, times * products)]
    wide = inputs if order == "aggregate" else inner
    if layer.kind == "gat":
        # The backward pass reads every edge from both ends.
        operations.append(cost.neighbours(f"attention over neighbours{both}", wide, every))
        operations.append(cost.halo(wide, 1 + backward))
    elif not precomputed:
        back = int(backward and not (first and order == "aggregate"))
        operations.append(cost.neighbours(f"aggregation{both}", wide, 1 + back))
        operations.append(cost.halo(wide, 1 + back))
    if layer.kind == "gin":
        operations.append(cost.product(f"second product{both}", inner, layer.channels, every))
    rows = cost.facts.rows
    passes = 4 + (6 if layer.norm != "none" else 0)
    if layer.kind == "gcn" and not precomputed:
        passes += 4  # rows are multiplied before they are gathered
    if not backward:
        passes //= 2
    operations.append(
        cost.stream(f"bias, activation, dropout{both}", passes * rows * layer.channels)
    )
    return tuple(each for each in operations if each is not None)


def _memory(
    model: Model, facts: Facts, layers: list[LayerPlan], training: Training, *, sparse: bool
) -> dict[str, int]:
    rows, columns, edges = facts.rows, facts.columns, facts.edges
    structure = 8 * (rows + 1) + edges * (facts.index_bytes + (4 if facts.weighted else 0))
    back = not facts.symmetric and any(p.number or p.order != "aggregate" for p in layers)
    found = {"graph": structure}
    if back:
        found["transpose"] = structure + 8 * (columns - rows)
    if columns > rows and any(p.layer.kind != "gat" for p in layers):
        found["ghost_edges"] = structure + 8 * rows
    found["normalization"] = 12 * columns * len({p.layer.kind for p in layers} - {"gat"})
    held = facts.features * (2 if model.input_dropout else 1)
    one = layers[0]
    if facts.on_gpu and one.precomputed and one.layer.kind != "sage" and not one.layer.residual:
        held = min(held, 2 * TILE)  # copied and aggregated, TILE columns at a time
    found["features"] = (
        2 * 8 * facts.nonzeros + 8 * (rows + facts.features) if sparse else _FLOAT * columns * held
    )
    kept = scratch = 0
    for plan in layers:
        layer = plan.layer
        assert layer.channels is not None
        wide = layer.channels * (1 if layer.concat else layer.heads)
        kept += columns * layer.channels
        if plan.order == "aggregate":
            kept += rows * plan.inputs
        if layer.kind == "sage":
            kept += rows * layer.channels + (rows * plan.inputs if layer.aggregate == "max" else 0)
        if layer.kind == "gin":
            kept += rows * (layer.hidden or layer.channels)
        if layer.kind == "gat":
            kept += (columns + rows) * wide + 7 * columns * layer.heads
        if layer.norm != "none":
            kept += rows * (layer.channels + 2)
        if layer.residual:
            kept += rows * layer.channels + (
                rows * layer.channels if plan.inputs != layer.channels else 0
            )
        widest = max(wide, layer.hidden or 0, plan.inputs if plan.number else 0)
        scratch = max(scratch, widest)
    found["activations"] = _FLOAT * kept
    buffers = 3 if any(p.layer.kind in ("sage", "gat") for p in layers) else 2
    found["gradients"] = _FLOAT * columns * scratch * buffers
    if training.precision == "bf16":
        found["bfloat16"] = 2 * columns * scratch
    ghosts = columns - rows
    # Two receive buffers for ghosts' rows, two for their gradients.
    found["halos"] = _FLOAT * 4 * ghosts * scratch
    return {kind: int(size) for kind, size in found.items() if size}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
