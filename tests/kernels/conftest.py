"""Every kernel test runs on each backend and compares with the naive twin."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest


@dataclass(frozen=True)
class Backend:
    name: str

    def module(self, noun):
        return import_module(f"penstock.kernels.{self.name}.{noun}")

    def put(self, array):
        """Copy an array to where this backend computes; None stays None."""
        if array is None or self.name == "cpu":
            return array
        import cupy

        return cupy.asarray(array)

    def get(self, array):
        """Copy a result back to NumPy."""
        return array.get() if hasattr(array, "get") else array


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], scope="session")
def backend(request):
    return Backend(request.param)


@pytest.fixture
def same():
    """Assert that results of any backend are equal to the truth, in value and dtype."""

    def compare(got, truth):
        if not isinstance(truth, tuple):
            got, truth = (got,), (truth,)
        assert len(got) == len(truth)
        for ours, expected in zip(got, truth, strict=True):
            if expected is None:
                assert ours is None
                continue
            ours = ours.get() if hasattr(ours, "get") else ours
            assert ours.dtype == expected.dtype
            np.testing.assert_array_equal(ours, expected)

    return compare
