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


def written_out(name, value, gradients, settings):
    """Return parameters after some steps, as the papers write them."""
    value, velocity, mean, square = value.copy(), 0.0, 0.0, 0.0
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
            np.sqrt(likely_square) + settings["epsilon"]
        )
    return value


@RULES
def test_steps_are_those_of_the_papers(backend, name, settings):
    gradients = [gradient(step, "float32").astype("float64") for step in range(1, STEPS + 1)]
    truth = written_out(name, start("float64"), gradients, settings)
    for module, put, dtype, close in (
        (naive, np.copy, "float64", {"rtol": 1e-12, "atol": 1e-14}),
        (backend.module("optimizer"), backend.put, "float32", {"rtol": 1e-5, "atol": 1e-6}),
    ):
        found, state = put(start(dtype)), [put(each) for each in states(name, dtype)]
        for step, slope in enumerate(gradients, start=1):
            given = put(slope.astype(dtype))
            getattr(module, name)(found, given, *state, Descent(**settings, step=step))
        assert found.dtype == dtype
        np.testing.assert_allclose(backend.get(found), truth, **close)
