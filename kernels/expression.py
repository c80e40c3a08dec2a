"""The weight of a transition, written as one expression of the user.

All values are float64: integers are exact, a comparison gives 1 or 0, ``and`` and ``or`` return one
of their sides, as in Python. All sides are computed, as no operation can fail: division by zero
gives an infinity or NaN. ``a // b`` is ``floor(a / b)``, ``a % b`` is ``a - b * floor(a / b)``. If
the final value is not positive (or NaN), the edge is not taken; values above LARGEST count as
LARGEST, so that a sum of weights stays finite, in float32 too.

kernels/naive/expression.py defines the meaning; this module turns it into a sequence of assignments
that is nearly the same in Python (for Numba) and C.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import UsageError

NAMES = ("weight", "relation", "degree", "step", "is_return", "is_neighbor", "label")
FUNCTIONS = {"min": 0, "max": 0, "abs": 1, "exp": 1, "log": 1, "sqrt": 1, "floor": 1, "pow": 2}
LARGEST = 1e30
MAX_CHARACTERS = 2000
MAX_DEPTH = 100
_SHOWN = 100  # characters of an expression in a message

BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
COMPARISONS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_KNOWN = (
    f"the names {', '.join(NAMES)}; min and max of two or more; abs(x), exp(x), log(x), sqrt(x),"
    " floor(x), pow(x, y); numbers, + - * / // % **, comparisons, and, or, not, ... if ... else ..."
)

Choose = Callable[[str, str, str], str]


@dataclass(frozen=True)
class Expression:
    """A valid expression.

    names  the NAMES that it uses, which the job must provide
    """

    text: str
    names: frozenset[str]
    tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read an expression; invalid ones raise UsageError with the valid syntax."""
        tree = _parsed(text)
        names: set[str] = set()
        _check(text, tree, names, MAX_DEPTH)
        return cls(text, frozenset(names), tree)

    def python_source(self, function_name: str) -> str:
        """Return the source of a function of NAMES, in order, that returns the weight.

        For ``exec`` and ``numba.njit(error_model="numpy")``; arguments may be of any number type.
        """
        values, result = _straight(self.tree, lambda test, yes, no: f"{yes} if {test} else {no}")
        lines = [
            "from math import exp, fabs, log, pow, sqrt",
            "from numpy import float64, floor",
            f"def {function_name}({', '.join(NAMES)}):",
            *(f"    {name} = float64({name})" for name in NAMES if name in self.names),
            *(f"    t{place} = {value}" for place, value in enumerate(values)),
            f"    return {result}",
        ]
        return "\n".join(lines) + "\n"

    def c_source(self, function_name: str, qualifiers: str = "static inline") -> str:
        """Return the source of a C, C++ or CUDA function of NAMES, in order, all double.

        qualifiers  "__device__ __forceinline__" for CUDA; C needs <math.h> before it
        """
        values, result = _straight(self.tree, lambda test, yes, no: f"{test} ? {yes} : {no}")
        parameters = ", ".join(f"double {name}" for name in NAMES)
        lines = [
            f"{qualifiers} double {function_name}({parameters}) {{",
            *(f"  const double t{place} = {value};" for place, value in enumerate(values)),
            f"  return {result};",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle only its text.
        return Expression.parse, (self.text,)


# -- validation -----------------------------------------------------------------------------------


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_CHARACTERS:
        raise _wrong(text, f"has more than {MAX_CHARACTERS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "2if" is odd, but unambiguous
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(text, f"cannot be read: {getattr(error, 'msg', error)}") from None


def _check(text: str, node: ast.expr, names: set[str], depth: int) -> None:
    if depth == 0:
        raise _wrong(text, f"has more than {MAX_DEPTH} levels")
    children = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    match node:
        case ast.Constant(value=int() | float() as value):
            known = type(value) is not bool and abs(value) <= sys.float_info.max
        case ast.Name(id=name):
            known = name in NAMES
            names.add(name)
        case ast.Call(func=ast.Name(id=name), args=children, keywords=[]) if name in FUNCTIONS:
            wanted = FUNCTIONS[name]
            known = len(children) == wanted if wanted else len(children) > 1
        case ast.BinOp(op=operator):
            known = type(operator) in BINARY
        case ast.UnaryOp(op=operator):
            known = isinstance(operator, ast.USub | ast.Not)
        case ast.Compare(ops=operators):
            known = all(type(each) in COMPARISONS for each in operators)
        case _:
            known = isinstance(node, ast.BoolOp | ast.IfExp)
    if not known:
        raise _wrong(text, f"has {ast.unparse(node)!r}, which is not known")
    for child in children:
        _check(text, child, names, depth - 1)


def _wrong(text: str, what: str) -> UsageError:
    shown = repr(textwrap.shorten(text.strip(), _SHOWN))
    return UsageError(f"the weight expression {shown} {what}", remedy=f"Known are {_KNOWN}")


# -- sequence of assignments ----------------------------------------------------------------------


def _straight(tree: ast.expr, choose: Choose) -> tuple[list[str], str]:
    values: list[str] = []

    def put(value: str) -> str:
        values.append(value)
        return f"t{len(values) - 1}"

    def lower(node: Any) -> str:
        match node:
            case ast.Constant(value=int() | float() as number):
                return repr(float(number))
            case ast.Name():
                return str(node.id)
            case ast.UnaryOp(op=ast.USub()):
                return put(f"-{lower(node.operand)}")
            case ast.UnaryOp():
                return put(choose(f"{lower(node.operand)} == 0.0", "1.0", "0.0"))
            case ast.BinOp():
                return binary(BINARY[type(node.op)], lower(node.left), lower(node.right))
            case ast.Compare():
                return compare([lower(side) for side in [node.left, *node.comparators]], node.ops)
            case ast.BoolOp():
                left, *more = map(lower, node.values)
                for right in more:
                    sides = (right, left) if isinstance(node.op, ast.And) else (left, right)
                    left = put(choose(f"{left} != 0.0", *sides))
                return left
            case ast.IfExp():
                test, yes, no = lower(node.test), lower(node.body), lower(node.orelse)
                return put(choose(f"{test} != 0.0", yes, no))
            case _:
                return call(node.func.id, [lower(argument) for argument in node.args])

    def binary(operator: str, left: str, right: str) -> str:
        if operator == "//":
            return put(f"floor({left} / {right})")
        if operator == "%":
            return put(f"{left} - {right} * floor({left} / {right})")
        if operator == "**":
            return put(f"pow({left}, {right})")
        return put(f"{left} {operator} {right}")

    def compare(sides: list[str], operators: list[ast.cmpop]) -> str:
        result = ""
        for operator, left, right in zip(operators, sides, sides[1:], strict=False):
            one = put(choose(f"{left} {COMPARISONS[type(operator)]} {right}", "1.0", "0.0"))
            result = put(f"{result} * {one}") if result else one
        return result

    def call(name: str, arguments: list[str]) -> str:
        if name in ("min", "max"):
            left, *more = arguments
            for right in more:
                left = put(choose(f"{right} {'<' if name == 'min' else '>'} {left}", right, left))
            return left
        return put(f"{'fabs' if name == 'abs' else name}({', '.join(arguments)})")

    value = lower(tree)
    value = put(choose(f"{value} > 0.0", value, "0.0"))
    return values, put(choose(f"{value} < {LARGEST!r}", value, f"{LARGEST!r}"))
