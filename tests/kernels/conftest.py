"""Every kernel test runs on each backend and compares with the naive twin."""

from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module

import numpy as np
import pytest


@dataclass(frozen=True)
class Backend:
    name: str

    def module(self, noun):
        return import_module(f"penstock.kernels.{self.name}.{noun}")

    def put(self, thing):
        """Copy an array, or a dataclass with all its arrays, to where this backend computes."""
        if is_dataclass(thing):
            if self.name == "cpu":
                return deepcopy(thing)
            found = {one.name: self.put(getattr(thing, one.name)) for one in fields(thing)}
            return replace(thing, **found)
        if not isinstance(thing, np.ndarray) or self.name == "cpu":
            return thing
        import cupy

        return cupy.asarray(thing)

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
