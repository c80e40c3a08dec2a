"""The choice of the sampler, and the placement of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import walk, walk_array
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, UsageError
from penstock.kernels.walk_rules import Sampler
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.walk.choice import choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.placement import choose_placement, not_in_parts, ranks_wanted
from penstock.pipelines.walk.weights import WeightStatistics, combined, inspect_rows

LITTLE, MUCH = 1, 1 << 40
EVEN, SKEWED = WeightStatistics(alike=False, trials=1.7), WeightStatistics(alike=False, trials=50.0)


@pytest.mark.parametrize(
    ("statistics", "memory", "options", "sampler", "why"),
    [
        (WeightStatistics(), MUCH, {}, Sampler.DIRECT, "alike"),
        (EVEN, MUCH, {}, Sampler.REJECTION, "1.70 proposals"),
        (EVEN, LITTLE, {}, Sampler.REJECTION, "no tables"),
        (EVEN, MUCH, {"weighted": False}, Sampler.DIRECT, "alike"),
        (SKEWED, MUCH, {}, Sampler.ALIAS, "50.00 proposals"),
        (SKEWED, 60_000, {}, Sampler.ITS, "50.00 proposals"),
        (SKEWED, MUCH, {"temporal": True}, Sampler.ITS, "with its tables"),
        (SKEWED, LITTLE, {}, Sampler.RESERVOIR, "do not fit into 1 B"),
        (SKEWED, MUCH, {"app": "node2vec", "p": 2}, Sampler.ALIAS, "proposals"),
        (EVEN, MUCH, {"app": "node2vec", "p": 1000}, Sampler.RESERVOIR, "from 0.001 to 1"),
        (EVEN, MUCH, {"app": "custom", "weight": "1"}, Sampler.RESERVOIR, "run time"),
        (SKEWED, MUCH, {"sampler": "rejection"}, Sampler.REJECTION, "rejection"),
        (EVEN, MUCH, {"sampler": "reservoir"}, Sampler.RESERVOIR, "reservoir"),
        (WeightStatistics(), MUCH, {"sampler": "alias"}, Sampler.DIRECT, "alike"),
        (EVEN, MUCH, {"app": "metapath", "schema": "0"}, Sampler.REJECTION, "no tables"),
    ],
)
def test_the_sampler_follows_from_weights_and_memory(
    make_graph: Any,
    statistics: WeightStatistics,
    memory: int,
    options: Any,
    sampler: Sampler,
    why: str,
) -> None:
    graph = make_graph(edges=2000, weights=True, relations=2, times=True)
    choice = choose(graph, WalkOptions(**options), statistics, memory)
    assert choice.spec.rules.sampler == sampler
    assert why in choice.why


def test_metapath_takes_a_row_for_each_relation_of_its_schema(make_graph: Any) -> None:
    graph = make_graph(relations=4)
    options = {"app": "metapath", "schema": "3,1,3"}
    spec = choose(graph, WalkOptions(**options), WeightStatistics(), MUCH).spec
    assert spec.wanted == (1, 3)
    assert spec.rules.schema == (1, 0, 1)
    options["sampler"] = "reservoir"
    spec = choose(graph, WalkOptions(**options), WeightStatistics(), MUCH).spec
    assert spec.wanted is None
    assert spec.rules.schema == (3, 1, 3)


def test_only_what_is_named_is_read(make_graph: Any) -> None:
    graph = make_graph(weights=True, relations=2, labels=3)
    spec = choose(graph, WalkOptions(app="custom", weight="degree"), EVEN, MUCH).spec
    assert (spec.weighted, spec.relations, spec.degrees) == (False, False, True)
    weight = "weight * relation + label"
    for statistics in (EVEN, WeightStatistics(alike=True)):
        spec = choose(graph, WalkOptions(app="custom", weight=weight), statistics, MUCH).spec
        assert (spec.weighted, spec.relations, spec.labels) == (True, True, True)


def test_factors_of_one_need_no_judgement(make_graph: Any) -> None:
    plain = choose(make_graph(), WalkOptions(app="node2vec"), WeightStatistics(), MUCH)
    assert not plain.spec.rules.second_order


def test_factors_that_would_look_like_a_hang_are_refused(make_graph: Any) -> None:
    graph, options = make_graph(), {"app": "node2vec", "p": 1e6}
    assert choose(graph, WalkOptions(**options), EVEN, MUCH).why.startswith("reservoir")
    for more in ({"sampler": "alias"}, {"placement": "partitioned"}):
        with pytest.raises(UsageError):
            choose(graph, WalkOptions(**options, **more), EVEN, MUCH)
        options = {"app": "node2vec", "q": 1e-6}


def test_statistics_of_shards_add_up(make_graph: Any) -> None:
    graph = make_graph(weights=True, name="sharded", shard_edges=64)
    csr = graph.csr()
    whole = combined(graph, [inspect_rows(csr.indptr, csr.indices, csr.weights)], WalkOptions())
    shards = [graph.shard(i) for i in range(graph.num_shards)]
    found = [inspect_rows(s.indptr, s.indices, s.weights, s.first_row) for s in shards]
    parts = combined(graph, found, WalkOptions())
    assert parts.trials == pytest.approx(whole.trials)
    expected, visits = 0.0, 0
    for low, high in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        weights = csr.weights[low:high]
        if len(weights):
            expected += len(weights) * weights.max() / weights.mean()
            visits += len(weights)
    assert whole.trials == pytest.approx(expected / visits)
    flat = np.full_like(csr.weights, 3)
    assert combined(graph, [inspect_rows(csr.indptr, csr.indices, flat)], WalkOptions()).alike


@pytest.mark.slow
def test_what_a_worker_itself_takes_is_not_there_for_the_graph(
    make_graph: Any, tmp_path: Path
) -> None:
    graph = make_graph(nodes=3000, edges=1_500_000)  # 10 MB of rows
    cluster = ClusterSpec(cluster="local", workers=1, memory_limit="380MB")
    with pytest.raises(CapacityError):
        walk(graph, tmp_path / "walks", cluster=cluster, length=5)


def test_where_the_graph_goes(make_graph: Any) -> None:
    graph = make_graph(weights=True)

    def where(rows: int, workers: int = 4, **options: Any) -> str:
        checked = WalkOptions(**options)
        spec = choose(graph, checked, EVEN, rows).spec
        return choose_placement(
            graph, checked, spec, Capacity(rows, rows, on_gpu=False, workers=workers)
        )

    assert where(MUCH) == "replicated"
    assert where(LITTLE) == "partitioned"
    assert where(MUCH, placement="partitioned") == "partitioned"
    with pytest.raises(CapacityError, match="--memory-limit"):
        where(LITTLE, placement="replicated")
    with pytest.raises(CapacityError, match="rejection"):
        where(LITTLE, workers=1)
    together = {"app": "node2vec", "p": 2, "sampler": "reservoir"}
    assert where(MUCH, **together) == "replicated"
    with pytest.raises(UsageError):
        where(MUCH, placement="partitioned", **together)
    reservoir = choose(graph, WalkOptions(sampler="reservoir"), EVEN, MUCH).spec.rules
    assert not_in_parts(reservoir, on_gpu=False) is None
    assert not_in_parts(reservoir, on_gpu=True) is not None
    near = {"app": "custom", "weight": "2 if is_neighbor else 1"}
    with pytest.raises(UsageError, match="is_neighbor"):
        where(MUCH, placement="partitioned", **near)


def test_parts_mean_a_graph_in_parts(make_graph: Any) -> None:
    graph = make_graph(weights=True)

    def where(**options: Any) -> str:
        checked = WalkOptions(parts=3, **options)
        assert ranks_wanted(graph, checked, ClusterSpec()) == 3
        spec = choose(graph, checked, EVEN, MUCH).spec
        return choose_placement(graph, checked, spec, Capacity(MUCH, MUCH, on_gpu=False, workers=3))

    assert where() == where(placement="partitioned") == "partitioned"
    assert where(app="node2vec", p=1e-3) == "partitioned", "which a reservoir could not"
    with pytest.raises(UsageError):
        where(app="node2vec", p=2, sampler="reservoir")
    with pytest.raises(UsageError):
        WalkOptions(parts=3, placement="replicated")
    for options in ({"parts": 3}, {"placement": "partitioned"}):
        with pytest.raises(UsageError):
            walk_array(graph, **options)
