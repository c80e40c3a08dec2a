"""Lowering: from a model and what is known of the graph to what will run, step by step.

    plan = lower(model, facts, training, rates)
    print(plan.text())
    plan.memory_bytes                    # of one rank, at most

A choice is made by predicted time: the order of product and sum in every layer, whether the first
layer's sum is folded (computed once), and the path of the features, dense or sparse (sparsity
against the machine's tau).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.errors import UsageError
from penstock.workers.gnn.plan.facts import Facts
from penstock.workers.gnn.plan.rates import Rates
from penstock.workers.gnn.plan.spec import Layer, Model, Training

_FLOAT = 4
GRADIENTS = "gradients of values, in turn"  # of what memory is for
TILE = 32  # features that a GPU is given at a time where only their sums are kept
Order = Literal["transform", "aggregate"]


@dataclass(frozen=True)
class Step:
    """One thing that a cell does in an epoch: what it takes, and when it is predicted to end."""

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
    folded: bool
    sparse: bool
    why: str
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """The predicted time of an epoch."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """What will run: layers in order, and the memory of one rank."""

    layers: tuple[LayerPlan, ...]
    facts: Facts
    sparse: bool
    tau: float
    memory: dict[str, int] = field(default_factory=dict)
    rest: tuple[Step, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """What one rank needs at most, in bytes."""
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
        """Return it as a person reads it."""
        from penstock.workers.gnn.plan.text import plan_text

        return plan_text(self)


def lower(model: Model, facts: Facts, training: Training, rates: Rates) -> Plan:
    """Return the plan of one rank; it depends on nothing else than its arguments."""
    model = model.complete(facts.outputs)
    cost = _Cost(facts, rates)
    sparse = _sparse_path(model, facts, training, rates)
    layers, inputs = [], facts.features
    for number, layer in enumerate(model.layers):
        first = number == 0
        layers.append(_layer(cost, layer, number, inputs, training, model, sparse=sparse and first))
        assert layer.width is not None
        inputs = layer.width
    _check_implicit(layers, training)
    memory = _memory(model, facts, layers, training, sparse=sparse)
    rest = (cost.stream("loss and its gradient", 2 * facts.rows * inputs),)
    return Plan(tuple(layers), facts, sparse, rates.tau, memory, rest)


def _check_implicit(layers: list[LayerPlan], training: Training) -> None:
    for plan in layers:
        kind = "sage max" if plan.layer.aggregate == "max" else plan.layer.kind
        if training.transpose == "implicit" and kind in ("gat", "sage max"):
            raise UsageError(
                f"layer {plan.number + 1} ({kind}) goes back over the edges turned round",
                expected="--transpose keep",
                got="--transpose implicit",
            )


def _sparse_path(model: Model, facts: Facts, training: Training, rates: Rates) -> bool:
    first = model.layers[0]
    # What reads features as a matrix: neighbours' largest values, and skipping over a layer.
    dense_only = (first.kind == "sage" and first.aggregate == "max") or (
        first.residual and first.width == facts.features
    )
    if training.path == "auto":
        return not dense_only and facts.sparsity >= rates.tau
    return training.path == "sparse" and not dense_only


class _Cost:
    """Predicted seconds of what cells do, forward and back."""

    def __init__(self, facts: Facts, rates: Rates) -> None:
        self.facts, self.rates = facts, rates

    def product(self, name: str, inputs: int, width: int, times: int) -> Step:
        """Return ``times`` products of all rows with a matrix."""
        flops = 2.0 * self.facts.rows * inputs * width * times
        size = _FLOAT * self.facts.rows * (inputs + width) * times
        return Step(name, flops, size, max(flops / self.rates.dense, size / self.rates.stream))

    def sparse_product(self, name: str, width: int, times: int) -> Step:
        """Return ``times`` products with sparse features."""
        flops = 2.0 * self.facts.nonzeros * width * times
        size = (8 + _FLOAT * width) * self.facts.nonzeros * times
        return Step(name, flops, size, flops / self.rates.sparse)

    def neighbours(self, name: str, width: int, times: float) -> Step:
        """Return ``times`` sums over neighbours."""
        facts = self.facts
        rows = _FLOAT * facts.edges * width * times
        indices = facts.index_bytes * facts.edges * times
        written = _FLOAT * facts.rows * width * times
        seconds = rows / self.rates.gather + (indices + written) / self.rates.stream
        return Step(name, 2.0 * facts.edges * width * times, rows + indices + written, seconds)

    def halo(self, width: int, times: int) -> Step | None:
        """Return ``times`` exchanges of ghosts' rows."""
        ghosts = self.facts.columns - self.facts.rows
        if not ghosts:
            return None
        size = _FLOAT * ghosts * width * times
        seconds = size / self.rates.exchange + times * self.rates.latency
        return Step("halo (while rows without ghosts are computed)", 0, size, seconds)

    def stream(self, name: str, values: float) -> Step:
        """Return a pass over so many values."""
        return Step(name, values, _FLOAT * values, _FLOAT * values / self.rates.stream)


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
    foldable = first and training.fold and not model.input_dropout and not sparse
    largest = layer.kind == "sage" and layer.aggregate == "max"
    known: list[tuple[Order, str]] = [("transform", ""), ("aggregate", "")]
    if layer.kind == "gat":
        known = [("transform", "attention reads what the product gives")]
    elif sparse:
        known = [("transform", "the product makes sparse features dense and narrow")]
    elif largest:
        known = [("aggregate", "a largest value does not commute with a product")]
    elif training.order != "auto":
        known = [(training.order, "asked for")]
    found = []
    for order, why in known:
        folded = foldable and order == "aggregate"
        steps = _steps(cost, layer, inputs, order, first=first, folded=folded, sparse=sparse)
        found.append(LayerPlan(layer, number, inputs, order, folded, sparse, why, steps))
    # What is computed once is paid by all epochs together.
    once = cost.neighbours("", inputs, 1).seconds / training.epochs
    best, *others = sorted(found, key=lambda plan: plan.seconds + once * plan.folded)
    if not others:
        return best
    other = others[0]
    reason = f"{_ms(best.seconds)} instead of {_ms(other.seconds)} an epoch"
    return LayerPlan(layer, number, inputs, best.order, best.folded, sparse, reason, best.steps)


def _steps(
    cost: _Cost, layer: Layer, inputs: int, order: Order, *, first: bool, folded: bool, sparse: bool
) -> tuple[Step, ...]:
    """Return what a layer does in an epoch, forward and back."""
    assert layer.width is not None
    width = layer.width if layer.join == "concat" else layer.width * layer.heads
    inner = (layer.hidden or layer.width) if layer.kind == "gin" else width
    # Forward, the weight's gradient, and, but for the first layer, the input's.
    times = 2 if first else 3
    products = 2 if layer.kind == "sage" else 1
    if sparse:
        steps: list[Step | None] = [
            cost.sparse_product("sparse features times weights, and back", inner, 2 * products)
        ]
    else:
        steps = [cost.product("product with weights, and back", inputs, inner, times * products)]
    wide = inputs if order == "aggregate" else inner
    if layer.kind == "gat":
        # Back, every edge is read from both ends.
        steps.append(cost.neighbours("attention over neighbours, and back", wide, 3))
        steps.append(cost.halo(wide, 2))
    elif not folded:
        back = 0 if first and order == "aggregate" else 1
        steps.append(cost.neighbours("sum over neighbours, and back", wide, 1 + back))
        steps.append(cost.halo(wide, 1 + back))
    if layer.kind == "gin":
        steps.append(cost.product("second product, and back", inner, layer.width, 3))
    rows = cost.facts.rows
    passes = 4 + (6 if layer.norm != "none" else 0)
    if layer.kind == "gcn" and not folded:
        passes += 4  # rows are multiplied before they are gathered
    steps.append(cost.stream("bias, activation, dropout, and back", passes * rows * layer.width))
    return tuple(step for step in steps if step is not None)


def _memory(
    model: Model, facts: Facts, layers: list[LayerPlan], training: Training, *, sparse: bool
) -> dict[str, int]:
    """Return what is held at the same time, by what it is for."""
    rows, columns, edges = facts.rows, facts.columns, facts.edges
    structure = 8 * (rows + 1) + edges * (facts.index_bytes + (4 if facts.weighted else 0))
    back = (
        training.transpose == "keep"
        and not facts.symmetric
        and any(not (p.number == 0 and p.order == "aggregate") for p in layers)
    )
    found = {"graph": structure}
    if back:
        found["graph, turned round"] = structure + 8 * (columns - rows)
    if columns > rows and any(p.layer.kind != "gat" for p in layers):
        found["graph, edges to ghosts apart"] = structure + 8 * rows
    found["factors"] = 12 * columns * len({p.layer.kind for p in layers} - {"gat"})
    held = facts.features * (2 if model.input_dropout else 1)
    one = layers[0]
    if facts.on_gpu and one.folded and one.layer.kind != "sage" and not one.layer.residual:
        held = min(held, 2 * TILE)  # they are moved there and summed, some columns after the other
    found["features"] = (
        2 * 8 * facts.nonzeros + 8 * (rows + facts.features) if sparse else _FLOAT * columns * held
    )
    kept = scratch = 0
    for plan in layers:
        layer = plan.layer
        assert layer.width is not None
        wide = layer.width * (layer.heads if layer.join == "mean" else 1)
        kept += columns * layer.width
        if plan.order == "aggregate":
            kept += rows * plan.inputs
        if layer.kind == "sage":
            kept += rows * layer.width + (rows * plan.inputs if layer.aggregate == "max" else 0)
        if layer.kind == "gin":
            kept += rows * (layer.hidden or layer.width)
        if layer.kind == "gat":
            kept += (columns + rows) * wide + 7 * columns * layer.heads
        if layer.norm != "none":
            kept += rows * (layer.width + 2)
        if layer.residual:
            kept += rows * layer.width + (rows * layer.width if plan.inputs != layer.width else 0)
        widest = max(wide, layer.hidden or 0, plan.inputs if plan.number else 0)
        scratch = max(scratch, widest)
    found["values of layers, kept for the way back"] = _FLOAT * kept
    buffers = 3 if any(p.layer.kind in ("sage", "gat") for p in layers) else 2
    found[GRADIENTS] = _FLOAT * columns * scratch * buffers
    if training.precision == "bf16":
        found["values rounded to bfloat16"] = 2 * columns * scratch
    ghosts = columns - rows
    # Two buffers where ghosts' rows land, two where their gradients do.
    found["halos under way"] = _FLOAT * 4 * ghosts * scratch
    return {name: int(size) for name, size in found.items() if size}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
