import pytest

from penstock import Graph, embed, generate


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A small knowledge graph with held-out triples; tests only read it."""
    path = tmp_path_factory.mktemp("embed") / "kg"
    generate("kg", path, entities=400, triples=6000, relations=6, quiet=True)
    return Graph.open(path)


@pytest.fixture(scope="session")
def trained(graph, tmp_path_factory):
    """A run that other tests only read."""
    run = tmp_path_factory.mktemp("trained") / "run"
    return run, embed.train(graph, run, dim=16, epochs=10, batch=200)
