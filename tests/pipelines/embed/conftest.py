from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import ClusterSpec, Graph, embed, generate
from penstock.workers.profiling import without_profile


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterSpec]:
    """A cluster in this process, started once for all tests of this folder."""
    from distributed import LocalCluster

    with (
        without_profile(unless_safe=False),
        LocalCluster(
            processes=False,
            n_workers=1,
            threads_per_worker=2,
            memory_limit=0,
            dashboard_address="localhost:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=40,
        ) as running,
    ):
        yield ClusterSpec(cluster=running.scheduler_address)


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A small knowledge graph with held-out triples; tests only read it."""
    path = tmp_path_factory.mktemp("embed") / "kg"
    generate("kg", path, entities=400, triples=6000, relations=6, quiet=True)
    return Graph.open(path)


@pytest.fixture(scope="session")
def trained(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, cluster: ClusterSpec
) -> tuple[Path, embed.TrainReport]:
    """A run that other tests only read."""
    run = tmp_path_factory.mktemp("trained") / "run"
    return run, embed.train(graph, run, dim=16, epochs=10, batch=200, cluster=cluster)
