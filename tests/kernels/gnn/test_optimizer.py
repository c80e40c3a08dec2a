import math

import numpy as np
import pytest

from penstock.kernels.gnn_rules import Descent
from penstock.kernels.naive import optimizer as naive

SIZE, STEPS = 137, 6
SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "scale": 0.5}
ADAM = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "scale": 0.5,
}
RULES = pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sgd", SGD),
        ("sgd", {**SGD, "momentum": 0.0, "weight_decay": 0.0, "scale": 1.0}),
        ("adam", {**ADAM, "decoupled": False}),
        ("adam", {**ADAM, "decoupled": True}),
        ("adam", {**ADAM, "decoupled": False, "weight_decay": 0.0, "scale": 1.0}),
    ],
    ids=["sgd", "plain sgd", "adam", "adamw", "plain adam"],
)


def start(dtype):
    return np.random.default_rng(0).standard_normal(SIZE).astype(dtype)


def gradient(step, dtype):
    return np.random.default_rng(step).standard_normal(SIZE).astype(dtype)


def states(name, dtype):
    return [np.zeros(SIZE, dtype) for _ in range(1 if name == "sgd" else 2)]


@RULES
def test_steps_equal_naive(backend, name, settings):
    truth, state = start("float32"), states(name, "float32")
    mine, mine_state = (
        backend.put(start("float32")),
        [backend.put(each) for each in states(name, "float32")],
    )
    for step in range(1, STEPS + 1):
        how = Descent(**settings, step=step)
        getattr(naive, name)(truth, gradient(step, "float32"), *state, how)
        given = backend.put(gradient(step, "float32"))
        getattr(backend.module("optimizer"), name)(mine, given, *mine_state, how)
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    for got, expected in zip([mine, *mine_state], [truth, *state], strict=True):
        assert got.dtype == "float32"
        np.testing.assert_allclose(backend.get(got), expected, **tolerance)


def written_out(name, value, gradients, settings):
    """Return one parameter after some steps, as the papers write them."""
    velocity = mean = square = 0.0
    for step, slope in enumerate(gradients, start=1):
        slope = slope * settings["scale"]
        if not settings.get("decoupled"):
            slope += settings["weight_decay"] * value
        if name == "sgd":
            velocity = settings["momentum"] * velocity + slope
            value -= settings["lr"] * velocity
            continue
        mean = settings["beta1"] * mean + (1 - settings["beta1"]) * slope
        square = settings["beta2"] * square + (1 - settings["beta2"]) * slope * slope
        likely_mean = mean / (1 - settings["beta1"] ** step)
        likely_square = square / (1 - settings["beta2"] ** step)
        shrunk = settings["lr"] * settings["weight_decay"] * value if settings["decoupled"] else 0
        value -= shrunk + settings["lr"] * likely_mean / (
            math.sqrt(likely_square) + settings["epsilon"]
        )
    return value


@RULES
def test_naive_steps_are_those_of_the_papers(name, settings):
    found, state = start("float64"), states(name, "float64")
    gradients = [gradient(step, "float64") for step in range(1, STEPS + 1)]
    for step, slope in enumerate(gradients, start=1):
        getattr(naive, name)(found, slope, *state, Descent(**settings, step=step))
    for i in range(0, SIZE, 17):
        truth = written_out(name, start("float64")[i], [each[i] for each in gradients], settings)
        assert found[i] == pytest.approx(truth, rel=1e-12)
