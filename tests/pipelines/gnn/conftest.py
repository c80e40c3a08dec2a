import shutil
from dataclasses import replace

import pytest

from penstock import Graph, generate


@pytest.fixture(scope="session")
def blocks(tmp_path_factory):
    """A block model that is easily learnt; tests only read it."""
    path = tmp_path_factory.mktemp("gnn") / "blocks"
    generate("sbm", path, nodes=400, blocks=4, width=16, noise=1, quiet=True)
    return Graph.open(path)


@pytest.fixture
def own_blocks(blocks, tmp_path):
    """The same, to change."""
    shutil.copytree(blocks.path, tmp_path / "g")
    return Graph.open(tmp_path / "g")


@pytest.fixture
def manifest_of(own_blocks):
    """The same with other entries in its manifest."""

    def change(**entries):
        replace(own_blocks.manifest, **entries).save(own_blocks.path)
        return Graph.open(own_blocks.path)

    return change
