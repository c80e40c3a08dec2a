"""Hosts that share only the run's folder train embeddings together."""

from __future__ import annotations

import numpy as np
import pytest
from embed_runs import vectors

from penstock import ClusterSpec, embed, generate

pytestmark = [pytest.mark.netns, pytest.mark.mpi, pytest.mark.slow]

OPTIONS = {"partitions": 8, "dim": 8, "epochs": 3, "batch": 25, "negatives": 16}
WORDS = " ".join(f"--{name} {value}" for name, value in OPTIONS.items())
WHERE = "--parts 2 --cluster mpi -n 2 --hosts h1:1,h2:1 --interface eth0"


def test_each_host_has_its_own_disk_and_copy_of_the_graph(make_hosts, tmp_path):
    """The graph and the partitions of each rank are on a disk that only its host mounts."""
    graph, run = tmp_path / "g", tmp_path / "run"
    generate("kg", graph, entities=300, triples=3000, relations=5, quiet=True)
    with make_hosts(2) as hosts:
        for host in hosts.names:
            assert hosts.run(host, ["cp", "-r", graph, hosts.tmp]).wait() == 0
        words = f"-m penstock embed train {hosts.tmp}/g {run} --worker-scratch {hosts.tmp}/scratch"
        done = hosts.python("h1", *f"{words} {WORDS} {WHERE}".split(), cwd=tmp_path)
        _, said = done.communicate(timeout=300)
        assert done.returncode == 0, said
    # Two ranks of one host train the same vectors.
    here = ClusterSpec(cluster="mpi", workers=2)
    embed.train(graph, tmp_path / "whole", cluster=here, parts=2, **OPTIONS)
    (ours, *_), (theirs, *_) = vectors(run), vectors(tmp_path / "whole")
    for mine, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, their)
