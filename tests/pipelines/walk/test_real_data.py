"""Walks on graphs that people know."""

import numpy as np
import pytest
from scipy import stats

from penstock import Graph, etl, walk_array
from penstock.kernels.naive.walk import transition
from penstock.kernels.walk_rules import WalkGraph, WalkRules


@pytest.fixture(scope="module")
def votes(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("votes") / "g"
    etl(data / "walks/wiki-Vote.edgelist", path, directed=True)
    return Graph.open(path)


@pytest.mark.parametrize("sampler", ["auto", "reservoir"])
def test_second_steps_of_node2vec_on_wiki_vote(votes, sampler):
    csr = votes.csr()
    hub = int(np.argmax(np.where(votes.degrees < 200, votes.degrees, 0)))
    name = str(votes.user_ids([hub])[0].as_py())
    options = {"start": (name,), "walks": 200_000, "length": 3, "sampler": sampler}
    paths = walk_array(votes, app="node2vec", p=0.25, q=4, **options)
    rules = WalkRules(3, second_order=True, return_factor=4, far_factor=0.25)
    rows = WalkGraph(csr.indptr, csr.indices)
    compared = 0
    for first in np.unique(paths[:, 1]):
        found = paths[(paths[:, 1] == first), 2]
        edges, chances = transition(rows, rules, int(first), hub, 2)
        if not len(edges):
            assert np.all(found == -1)
            continue
        counts = np.bincount(found, minlength=votes.num_nodes)[csr.indices[edges]]
        assert counts.sum() == len(found)
        if chances.min() * len(found) > 5:
            assert stats.chisquare(counts, chances * len(found)).pvalue > 1e-6
            compared += 1
    assert compared > 10
