"""On a GPU, ETL writes the same bytes as on the CPU."""

from contextlib import contextmanager
from importlib.util import find_spec

import dask
import numpy as np
import pandas as pd
import pytest

from penstock import Graph, etl
from penstock.workers.resources import device

pytestmark = pytest.mark.gpu


@contextmanager
def backend(name):
    """Make the workers of this process compute as Dask's configuration says."""
    with dask.config.set({"penstock.device": name}):
        device.look_again()
        yield
    device.look_again()


@pytest.mark.parametrize("kind", ["int", "wide", "string"])
@pytest.mark.parametrize(
    "options",
    [
        {"weight": "none", "relation": "none"},
        {"weight": "weight", "relation": "relation", "time": "time", "relabel": "random"},
        {
            "weight": "weight",
            "duplicates": "max",
            "directed": True,
            "relation": "none",
            "split_edges": (0.8, 0.1, 0.1),
        },
        {
            "relation": "relation",
            "duplicates": "first",
            "self_loops": "keep",
            "split_edges": (0.5, 0.2, 0.3),
            "min_degree": 2,
        },
    ],
)
def test_same_bytes_as_on_the_cpu(tmp_path, kind, options):
    random = np.random.default_rng(0)
    ends = (random.random((20_000, 2)) ** 2 * 3000).astype(np.int64)
    names = {
        "int": ends * 3 - 500,
        "wide": ends * 2**50 - 2**60,
        "string": np.char.add("n\u00e9", ends.astype(str)),
    }[kind]
    table = pd.DataFrame(
        {
            "src": names[:, 0],
            "dst": names[:, 1],
            "weight": random.random(len(ends)).astype(np.float32),
            "relation": np.char.add("r", random.integers(0, 5, len(ends)).astype(str)),
            "time": random.integers(0, 10**9, len(ends)),
        }
    )
    table.to_parquet(tmp_path / "edges.parquet", row_group_size=3000)
    for name in ("cpu", "gpu"):
        with backend(name):
            assert device.gpu() == (name == "gpu")
            assert device.frames() == (name == "gpu" and find_spec("cudf") is not None)
            etl(tmp_path / "edges.parquet", tmp_path / name, **options)
    manifests = [Graph.open(tmp_path / name).manifest for name in ("cpu", "gpu")]
    assert manifests[0].files == manifests[1].files
