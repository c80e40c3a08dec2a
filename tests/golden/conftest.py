"""Each test runs in a folder of its own; inputs that several files read are made once."""

from contextlib import chdir

import dask
import pytest
from golden import follows, run


@pytest.fixture(autouse=True, scope="module")
def _cpu():
    """Compute on CPUs, on which golden.json was written, also if there is a GPU."""
    with dask.config.set({"penstock.cluster.device": "cpu"}):
        yield


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def given(tmp_path_factory):
    """Make a folder of graphs.

    follows.parquet   src, dst, weight, time: of 200 people, with duplicates and self-loops
    blocks            400 nodes in 5 blocks, with dense features
    weighted          follows.parquet, directed, with weights and times
    one               the same without times and duplicates
    kg                200 entities, 4 relations, with held-out triples
    """
    folder = tmp_path_factory.mktemp("golden")
    with chdir(folder):
        follows().to_parquet("follows.parquet")
        run("generate sbm blocks --nodes 400 --blocks 5 --width 16 --noise 2")
        run("etl follows.parquet weighted --directed --weight weight --time time")
        run("etl follows.parquet one --directed --duplicates max")
        run("generate kg kg --entities 200 --relations 4 --cluster-size 8 --triples 3000")
    return folder
