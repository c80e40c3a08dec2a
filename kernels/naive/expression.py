"""The meaning of a user's expression over the edges of a row, in plain NumPy."""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.expression import BINARY, COMPARISONS, LARGEST, Expression
from penstock.kernels.walk_rules import WalkGraph

_BINARY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": lambda a, b: np.floor(a / b),
    "%": lambda a, b: a - b * np.floor(a / b),
    "**": np.power,
}
_COMPARISONS: dict[str, Any] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_FUNCTIONS: dict[str, Any] = {
    "min": lambda a, b: np.where(b < a, b, a),
    "max": lambda a, b: np.where(b > a, b, a),
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "pow": np.power,
}


def evaluate(
    expression: str, rows: WalkGraph, edges: Array, node: int, previous: int, step: int
) -> Array:
    """Return the weight of each edge of the row of ``node``: (edges,) float64, from 0 to LARGEST.

    edges     (n,) their numbers, in the order of the result
    previous  the node before ``node``, or -1
    """
    targets = rows.indices[edges]
    near: Array = np.empty(0, np.int64)
    if previous >= 0 and "is_neighbor" in Expression.parse(expression).names:
        indptr, indices = rows.adjacency
        near = indices[indptr[previous] : indptr[previous + 1]]
    inputs = {
        "step": step,
        "is_return": (targets == previous) & (previous >= 0),
        "is_neighbor": np.isin(targets, near),
    }
    # Rows have every column that the expression names.
    for name, column, at in (
        ("weight", rows.weights, edges),
        ("relation", rows.relations, edges),
        ("degree", rows.degrees, targets),
        ("label", rows.labels, targets),
    ):
        if column is not None:
            inputs[name] = column[at]
    return compute(expression, inputs, len(edges))


def compute(expression: str, inputs: dict[str, Any], count: int) -> Array:
    """Return the value for ``count`` inputs, numbers or arrays of them by name."""
    parsed = Expression.parse(expression)
    columns = {name: np.asarray(inputs[name]).astype(np.float64) for name in parsed.names}
    with np.errstate(all="ignore"):
        value = np.broadcast_to(_value(parsed.tree, columns), count)
        return np.where(value > 0, np.minimum(value, LARGEST), 0.0)


def _value(tree: Any, columns: dict[str, Array]) -> Any:
    def value(node: Any) -> Any:
        return _value(node, columns)

    match tree:
        case ast.Constant(value=int() | float() as number):
            return np.float64(number)
        case ast.Name():
            return columns[tree.id]
        case ast.UnaryOp(op=ast.USub()):
            return -value(tree.operand)
        case ast.UnaryOp():
            return np.where(value(tree.operand) == 0, 1.0, 0.0)
        case ast.BinOp():
            operation: Any = _BINARY[BINARY[type(tree.op)]]
            return operation(value(tree.left), value(tree.right))
        case ast.Compare():
            sides = [value(side) for side in (tree.left, *tree.comparators)]
            holds = [
                _COMPARISONS[COMPARISONS[type(operator)]](left, right)
                for operator, left, right in zip(tree.ops, sides, sides[1:], strict=False)
            ]
            return np.where(np.logical_and.reduce(np.broadcast_arrays(*holds)), 1.0, 0.0)
        case ast.BoolOp(op=ast.And()):
            return reduce(lambda a, b: np.where(a != 0, b, a), map(value, tree.values))
        case ast.BoolOp():
            return reduce(lambda a, b: np.where(a != 0, a, b), map(value, tree.values))
        case ast.IfExp():
            return np.where(value(tree.test) != 0, value(tree.body), value(tree.orelse))
        case _:
            function = _FUNCTIONS[tree.func.id]
            arguments = [value(argument) for argument in tree.args]
            return reduce(function, arguments) if len(arguments) > 1 else function(*arguments)
