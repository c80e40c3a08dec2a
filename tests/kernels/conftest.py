"""Every kernel test runs on each backend and compares with the naive twin."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Backend:
    name: str

    def module(self, noun: str) -> ModuleType:
        return import_module(f"penstock.kernels.{self.name}.{noun}")

    def put(self, array: Any) -> Any:
        """Copy an array to where this backend computes; None stays None."""
        if array is None or self.name == "cpu":
            return array
        import cupy

        return cupy.asarray(array)

    def get(self, array: Any) -> Any:
        """Copy a result back to NumPy."""
        return array.get() if hasattr(array, "get") else array


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    return Backend(request.param)


@pytest.fixture
def same(backend: Backend) -> Any:
    """Assert that results are equal to the truth, in value and dtype."""

    def compare(got: Any, truth: Any) -> None:
        if not isinstance(truth, tuple):
            got, truth = (got,), (truth,)
        assert len(got) == len(truth)
        for ours, expected in zip(got, truth, strict=True):
            if expected is None:
                assert ours is None
                continue
            ours = backend.get(ours)
            assert ours.dtype == expected.dtype
            np.testing.assert_array_equal(ours, expected)

    return compare
