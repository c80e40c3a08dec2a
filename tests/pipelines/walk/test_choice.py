"""The choice of the sampler, and the placement of the graph."""

import pytest

from penstock import walk
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, UsageError
from penstock.kernels.walk_rules import Sampler
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.walk.choice import choose
from penstock.pipelines.walk.options import WalkOptions
from penstock.pipelines.walk.placement import choose_placement, not_in_parts
from penstock.pipelines.walk.weights import WeightStatistics

LITTLE, MUCH = 1, 1 << 40
EVEN, SKEWED = WeightStatistics(alike=False, trials=1.7), WeightStatistics(alike=False, trials=50.0)


@pytest.mark.parametrize(
    ("statistics", "memory", "options", "sampler"),
    [
        (WeightStatistics(), MUCH, {}, Sampler.DIRECT),
        (EVEN, MUCH, {}, Sampler.REJECTION),
        (EVEN, LITTLE, {}, Sampler.REJECTION),
        (EVEN, MUCH, {"weighted": False}, Sampler.DIRECT),
        (SKEWED, MUCH, {}, Sampler.ALIAS),
        (SKEWED, 60_000, {}, Sampler.ITS),
        (SKEWED, MUCH, {"temporal": True}, Sampler.ITS),
        (SKEWED, LITTLE, {}, Sampler.RESERVOIR),
        (SKEWED, MUCH, {"app": "node2vec", "p": 2}, Sampler.ALIAS),
        (EVEN, MUCH, {"app": "node2vec", "p": 1000}, Sampler.RESERVOIR),
        (EVEN, MUCH, {"app": "custom", "weight": "1"}, Sampler.RESERVOIR),
        (SKEWED, MUCH, {"sampler": "rejection"}, Sampler.REJECTION),
        (EVEN, MUCH, {"sampler": "reservoir"}, Sampler.RESERVOIR),
        (WeightStatistics(), MUCH, {"sampler": "alias"}, Sampler.DIRECT),
        (EVEN, MUCH, {"app": "metapath", "schema": "0"}, Sampler.REJECTION),
    ],
)
def test_the_sampler_follows_from_weights_and_memory(
    make_graph, statistics, memory, options, sampler
):
    graph = make_graph(edges=2000, weights=True, relations=2, times=True)
    choice = choose(graph, WalkOptions(**options), statistics, memory)
    assert choice.spec.rules.sampler == sampler


def test_factors_that_would_look_like_a_hang_are_refused(make_graph):
    graph, options = make_graph(), {"app": "node2vec", "p": 1e6}
    chosen = choose(graph, WalkOptions(**options), EVEN, MUCH)
    assert chosen.spec.rules.sampler == Sampler.RESERVOIR
    for more in ({"sampler": "alias"}, {"placement": "partitioned"}):
        with pytest.raises(UsageError):
            choose(graph, WalkOptions(**options, **more), EVEN, MUCH)
        options = {"app": "node2vec", "q": 1e-6}


@pytest.mark.slow
def test_what_a_worker_itself_takes_is_not_there_for_the_graph(make_graph, tmp_path):
    graph = make_graph(nodes=3000, edges=1_500_000)  # 10 MB of rows
    cluster = ClusterSpec(cluster="local", workers=1, memory_limit="380MB")
    with pytest.raises(CapacityError):
        walk(graph, tmp_path / "walks", cluster=cluster, length=5)


def test_where_the_graph_goes(make_graph):
    graph = make_graph(weights=True)

    def where(rows, workers=4, **options):
        checked = WalkOptions(**options)
        spec = choose(graph, checked, EVEN, rows).spec
        return choose_placement(
            graph, checked, spec, Capacity(rows, rows, on_gpu=False, workers=workers)
        )

    assert where(MUCH) == "replicated"
    assert where(LITTLE) == "partitioned"
    assert where(MUCH, placement="partitioned") == "partitioned"
    assert where(LITTLE, placement="replicated") == "replicated"  # and refused by its need
    assert where(LITTLE, workers=1) == "replicated"
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
