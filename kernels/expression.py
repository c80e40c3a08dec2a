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
_FOREIGN = {
    ast.Attribute: "an attribute (a dot)",
    ast.Subscript: "an index in brackets",
    ast.Lambda: "a function of its own (lambda)",
    ast.NamedExpr: "an assignment",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.List: "a list",
    ast.Tuple: "a comma outside a function's parentheses",
    ast.Set: "a set",
    ast.Dict: "a dictionary",
    ast.JoinedStr: "text",
    ast.Starred: "a star before an argument",
}
_KNOWN = (
    f"the names {', '.join(NAMES)}; the functions {', '.join(FUNCTIONS)}; numbers, + - * / // % **,"
    " comparisons, and, or, not, ... if ... else ..."
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
        got = f"{len(text)}"
        raise _wrong(text, "is too long", f"at most {MAX_CHARACTERS} characters", got)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "2if" is odd, but unambiguous
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        place = f" near character {error.offset}" if error.offset else ""
        raise _wrong(text, f"is not an expression: {error.msg}{place}") from None
    except (ValueError, RecursionError, MemoryError):  # a null byte; nested too deeply
        raise _wrong(text, "cannot be read") from None


def _check(text: str, node: ast.expr, names: set[str], depth: int) -> None:
    if depth == 0:
        raise _wrong(text, "is nested too deeply", f"at most {MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=value):
            _check_number(text, value)
        case ast.Name(id=name):
            if name not in NAMES:
                raise _wrong(text, f"names {name!r}, which is unknown")
            names.add(name)
        case ast.Call():
            _check_call(text, node)
        case ast.BinOp(op=operator) if type(operator) not in BINARY:
            raise _wrong(text, "has an operator that is not allowed")
        case ast.UnaryOp(op=operator) if not isinstance(operator, ast.USub | ast.Not):
            raise _wrong(text, "has an operator that is not allowed")
        case ast.Compare(ops=operators) if any(type(each) not in COMPARISONS for each in operators):
            raise _wrong(text, "has a comparison that is not allowed")
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
            pass
        case _:
            raise _wrong(
                text,
                f"has {_FOREIGN.get(type(node), 'a construct of Python')}; that is not allowed",
            )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            _check(text, child, names, depth - 1)


def _check_number(text: str, value: object) -> None:
    if type(value) not in (int, float):
        raise _wrong(text, f"has {value!r}, which is not a number")
    try:
        if float(value) < float("inf"):  # type: ignore[arg-type]
            return
    except OverflowError:
        pass
    raise _wrong(text, "has a number that is too large")


def _check_call(text: str, node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name):
        raise _wrong(text, "calls something that is not a function's name")
    name = node.func.id
    if name not in FUNCTIONS:
        raise _wrong(text, f"calls {name!r}, which is unknown")
    if node.keywords:
        raise _wrong(text, f"names an argument of {name}; that is not allowed")
    wanted, got = FUNCTIONS[name], len(node.args)
    if got != wanted if wanted else got < 2:
        expected = f"{wanted or 'two or more'} in {name}()"
        raise _wrong(text, "has a wrong number of arguments", expected, f"{got}")


def _wrong(text: str, what: str, expected: str | None = None, got: str | None = None) -> UsageError:
    text = text.strip()
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
    return UsageError(
        f"the weight expression {shown} {what}",
        expected=expected,
        got=got,
        remedy=f"Known are {_KNOWN}",
    )


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
