"""A weight written by the user: one meaning in NumPy, Numba and C, and nothing else gets in."""

import ctypes
import math
import shutil
import subprocess
from contextlib import suppress

import hypothesis.strategies as st
import numba
import numpy as np
import pytest
from hypothesis import given, settings

from penstock.errors import UsageError
from penstock.kernels.expression import FUNCTIONS, LARGEST, MAX_CHARACTERS, NAMES, Expression
from penstock.kernels.naive.expression import compute

COMPILER = shutil.which("gcc") or shutil.which("cc")


def inputs(count, seed):
    draw = np.random.default_rng(seed)
    return {
        "weight": draw.choice([0, 0.5, 1, 3.25, 1e-30, 7e20], count).astype(np.float32),
        "relation": draw.integers(0, 5, count).astype(np.int32),
        "degree": draw.integers(0, 200, count).astype(np.int32),
        "step": draw.integers(1, 80, count),
        "is_return": draw.random(count) < 0.5,
        "is_neighbor": draw.random(count) < 0.5,
        "label": draw.integers(-1, 4, count).astype(np.int32),
    }


def with_numba(text, columns):
    space = {}
    exec(Expression.parse(text).python_source("weigh"), space)
    # Typed as a kernel would call it: float32, integers and truth values.
    types = "float64(float32, int32, int32, int64, boolean, boolean, int32)"
    weigh = numba.njit(types, error_model="numpy")(space["weigh"])
    return np.array([weigh(*each) for each in zip(*columns.values(), strict=True)])


def with_c(texts, columns, folder, *flags):
    assert COMPILER is not None
    source, library = folder / "weigh.c", folder / "weigh.so"
    functions = [
        Expression.parse(text).c_source(f"weigh{place}", "") for place, text in enumerate(texts)
    ]
    source.write_text("#include <math.h>\n" + "".join(functions))
    command = [COMPILER, "-shared", "-fPIC", "-ffp-contract=off", *flags, "-o", library, source]
    subprocess.run([*command, "-lm"], check=True)
    loaded, results = ctypes.CDLL(str(library)), []
    for place in range(len(texts)):
        weigh = loaded[f"weigh{place}"]
        weigh.restype, weigh.argtypes = ctypes.c_double, [ctypes.c_double] * len(NAMES)
        results.append(np.array([weigh(*each) for each in zip(*columns.values(), strict=True)]))
    return results


# -- expressions made up ---------------------------------------------------------------------------


def written(form, *parts):
    return st.tuples(*parts).map(lambda made: form.format(*made))


def exactly_rounded(inner):
    compare = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    both = st.sampled_from(["and", "or"])
    return st.one_of(
        written("({} {} {})", inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner),
        written("({} {} {})", inner, compare, inner),
        written("({} {} {} {} {})", inner, compare, inner, compare, inner),
        written("({} {} {} {} {})", inner, both, inner, both, inner),
        written("({}{})", st.sampled_from(["-", "not "]), inner),
        written("({} if {} else {})", inner, inner, inner),
        written("{}({})", st.sampled_from(["abs", "sqrt", "floor"]), inner),
        written("{}({}, {}, {})", st.sampled_from(["min", "max"]), inner, inner, inner),
    )


def rounded(inner):
    # Never negative and without jumps: what is nearly equal stays so.
    return st.one_of(
        written("({} {} {})", inner, st.sampled_from("+*"), inner),
        written("exp(-{})", inner),
        written("log(1 + {})", inner),
        written("pow({}, 0.75)", inner),
        written("{} ** 1.5", st.sampled_from(["abs(label)", "degree", "weight"])),
        written("({} if is_return else {})", inner, inner),
    )


NUMBERS = st.one_of(st.integers(0, 10).map(str), st.floats(0, 1e3, allow_subnormal=False).map(repr))
EXACT = st.recursive(
    st.one_of(st.sampled_from(NAMES), NUMBERS, st.sampled_from(["1e300", "1e-300"])),
    exactly_rounded,
    max_leaves=12,
).filter(lambda text: len(text) <= MAX_CHARACTERS)
NEARLY = st.recursive(
    st.one_of(st.sampled_from(["weight", "degree", "step", "is_neighbor"]), NUMBERS),
    rounded,
    max_leaves=8,
)


@settings(max_examples=15, deadline=None)
@given(text=EXACT, seed=st.integers(0, 99))
def test_numba_agrees_to_the_bit(text, seed):
    columns = inputs(20, seed)
    np.testing.assert_array_equal(with_numba(text, columns), compute(text, columns, 20), text)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(text=NEARLY, seed=st.integers(0, 99))
def test_numba_agrees_on_logarithms_and_powers(text, seed):
    columns = inputs(20, seed)
    close(with_numba(text, columns), compute(text, columns, 20), text)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@settings(max_examples=3, deadline=None)
@given(
    exact=st.lists(EXACT, min_size=20, max_size=40),
    other=st.lists(NEARLY, min_size=10, max_size=20),
    seed=st.integers(0, 99),
)
def test_c_agrees(tmp_path_factory, exact, other, seed):
    columns, folder = inputs(20, seed), tmp_path_factory.mktemp("c")
    results = with_c(exact + other, columns, folder, "-O2")
    for text, got in zip(exact, results, strict=False):
        np.testing.assert_array_equal(got, compute(text, columns, 20), text)
    for text, got in zip(other, results[len(exact) :], strict=True):
        close(got, compute(text, columns, 20), text)


def close(got, truth, text):
    np.testing.assert_allclose(got, truth, rtol=1e-9, atol=1e-300, err_msg=text)


# -- the meaning -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "degree // 7 + 1",
        "(label - 5) // 2 + 9",
        "(label - 5) % 3 + 1",
        "step % 2 == 0",
        "0 < relation <= 3 != label",
        "relation and 5 or label and 7",
        "not relation",
        "1 if not is_return and is_neighbor else 3",
        "min(relation, 2, step) + max(1, degree)",
        "weight * (0.5 if is_return else 1 if is_neighbor else 2)",
        "weight / sqrt(degree + 1) if relation != 3 else 0",
        "exp(-step / 10) + log(degree + 1) + abs(label) + pow(2, 3) + 2 ** 0.5 + floor(2.7)",
    ],
)
def test_python_itself_agrees(text):
    columns = inputs(50, 1)
    functions = {"min": min, "max": max, "abs": abs, "pow": pow}
    functions |= {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "floor": math.floor}
    assert functions.keys() == FUNCTIONS.keys()
    lists = [column.tolist() for column in columns.values()]
    expected = [
        max(0.0, float(eval(text, functions, dict(zip(NAMES, each, strict=True)))))
        for each in zip(*lists, strict=True)
    ]
    np.testing.assert_allclose(compute(text, columns, 50), expected, rtol=1e-12)


VALUES = {
    "1 / 0": LARGEST,
    "-1 / 0": 0,
    "0 / 0": 0,
    "log(0)": 0,
    "sqrt(-1)": 0,
    "(-8) ** 0.5": 0,
    "1e300 * 1e300": LARGEST,
    "exp(1000)": LARGEST,
    "-3": 0,
    "3 % 0": 0,
    "3 // 0": LARGEST,
    "max(0 / 0, 2)": 0,
    "max(2, 0 / 0)": 2,
    "1e-40": 1e-40,
    " 7 ": 7,
    "2if is_return else 2": 2,
}


def test_nothing_fails_and_every_weight_is_finite(tmp_path):
    columns, wanted = inputs(3, 1), [[value] * 3 for value in VALUES.values()]
    assert [compute(text, columns, 3).tolist() for text in VALUES] == wanted
    assert [with_numba(text, columns).tolist() for text in VALUES] == wanted
    if COMPILER is not None:
        assert [each.tolist() for each in with_c(VALUES, columns, tmp_path)] == wanted


# -- what gets in ----------------------------------------------------------------------------------


REFUSED = """
weigth * 2|__builtins__|sin(weight)|__import__('os')|weight(1)|min|weight.real|().__class__
min.__self__.eval(1, 2)|(lambda: 1)()|(exp if step else log)(2)|lambda: 1|weight[0]|(step := 2)
[step for step in (1, 2)]|min(each for each in (1, 2))|max(1)|sqrt(1, 2)|pow(2)|sqrt(x=2)
max(1, *(2, 3))|1, 2|[1]|{1}|{1: 2}|f'{step}'|await step|'1'|True|None|2j|...|1e999
weight @ 2|step << 2|~step|step in 2|step is 2|weight *|import os|step = 2|1) + (2|weight\0
"""
LONG = ["", "9" * 400, "-" * 1500 + "1", "(" * 900 + "1" + ")" * 900, "-" * 150 + "1", "1" * 2001]


@pytest.mark.parametrize("text", [*REFUSED.strip().replace("\n", "|").split("|"), *LONG])
def test_nothing_but_arithmetic_gets_in(text):
    with pytest.raises(UsageError):
        Expression.parse(text)


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from([*"weight step()+-*/<>=!.,:'\"[]{}0123_\n\\"]), max_size=40))
def test_any_text_is_an_expression_or_a_usage_error(text):
    with suppress(UsageError):
        Expression.parse(text)
