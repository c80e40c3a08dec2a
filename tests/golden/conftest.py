"""Inputs that the tests of several files read, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import follows, run


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of graphs: blocks that a model can learn, and one of weights and times.

    follows.parquet   src, dst, weight, time: of 200 people, with duplicates and self-loops
    blocks            400 nodes in 5 blocks, with dense features
    weighted          follows.parquet, directed, with weights and times
    one               200 people, directed, with weights
    kg                200 entities, 4 relations, with held-out triples
    """
    folder = tmp_path_factory.mktemp("golden")
    follows().to_parquet(folder / "follows.parquet")
    run("generate sbm blocks --nodes 400 --blocks 5 --width 16 --noise 2", folder=folder)
    run("etl follows.parquet weighted --directed --weight weight --time time", folder=folder)
    run("etl follows.parquet one --directed --duplicates max", folder=folder)
    run(
        "generate kg kg --entities 200 --relations 4 --cluster-size 8 --triples 3000", folder=folder
    )
    return folder
