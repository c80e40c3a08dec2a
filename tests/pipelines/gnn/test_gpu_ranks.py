"""Ranks on GPUs learn what one rank on CPUs learns."""

import json

import numpy as np
import pytest

from penstock import ClusterSpec, generate, gnn, partition_graph
from penstock.graph import Graph


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_two_ranks_on_gpus_have_the_curve_of_one_on_cores(kind, tmp_path):
    generate("sbm", tmp_path / "g", nodes=3000, blocks=5, width=40, noise=10, quiet=True)
    graph = Graph.open(tmp_path / "g")
    partition_graph(graph, k=2, method="random", quiet=True)
    curves = []
    for device, parts in (("cpu", 1), ("gpu", 2)):
        cluster = ClusterSpec(cluster="mpi", workers=parts, device=device)
        run = tmp_path / f"{device}{parts}"
        trained = gnn.train(
            graph, run, model=kind, hidden=16, epochs=12, parts=parts, cluster=cluster, quiet=True
        )
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        curves.append([line["train"]["loss"] for line in lines])
        assert trained.trained.epochs == 12
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-4)
    assert curves[0][-1] < 0.9 * curves[0][0]
