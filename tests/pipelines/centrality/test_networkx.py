"""Graphs of NetworkX: many at once, and penstock as a backend of NetworkX."""

import inspect
import os
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import python

from penstock import centrality
from penstock.errors import InputError, UsageError
from penstock.pipelines.centrality.networkx import backend_interface


@pytest.fixture
def backend(monkeypatch):
    """Make the backend known, as its entry point does where penstock is newly installed."""
    if "penstock" not in nx.utils.backends.backends:
        pytest.skip("penstock was installed before it had an entry point for NetworkX")
    # That a graph must not be changed behind NetworkX' back, which this one is not.
    monkeypatch.setattr(nx.config, "warnings_to_ignore", {"cache"}, raising=False)
    return "penstock"


def graphs(*, directed=False):
    found = [nx.gnp_random_graph(n, 0.2, seed=n, directed=directed) for n in (0, 1, 7, 20)]
    for graph in found:
        for a, b in graph.edges:
            graph[a][b]["weight"] = 1.0 + (a + b) % 3
    return [nx.relabel_nodes(graph, {n: f"node {n}" for n in graph}) for graph in found]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_list_of_graphs(directed, weighted):
    given = graphs(directed=directed)
    weight = "weight" if weighted else None
    found = centrality(given, metrics="closeness,betweenness,pagerank", weighted=weighted)
    for graph, result in zip(given, found, strict=True):
        for metric, wanted in (
            ("closeness", nx.closeness_centrality(graph, distance=weight)),
            ("betweenness", nx.betweenness_centrality(graph, weight=weight)),
            ("pagerank", nx.pagerank(graph, weight=weight)),
        ):
            assert result[metric] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    one = centrality(given[2], metrics="diameter,component")
    assert set(one) == {"diameter", "radius", "component", "components"}


def test_what_cannot_go_together(tmp_path):
    graph = nx.path_graph(3)
    for graphs_of, options in (
        (graph, {"out": tmp_path / "out"}),
        ([graph, nx.DiGraph(graph)], {}),
        (graph, {"metrics": "edge-betweenness"}),
        (nx.DiGraph([(0, 1)]), {"metrics": "triangles"}),
        (graph, {"directed": True}),
        (graph, {"resume": True}),
    ):
        with pytest.raises(UsageError):
            centrality(graphs_of, **options)


def test_the_weight_that_is_named():
    graph = nx.Graph()
    graph.add_edge(0, 1, cost=5, weight=1)
    graph.add_edge(1, 2, cost=2, weight=1)
    found = centrality(graph, metrics="closeness", weighted=True, weight="cost")["closeness"]
    assert found == pytest.approx(nx.closeness_centrality(graph, distance="cost"))


@pytest.mark.parametrize("weight", [-1, float("inf"), float("nan"), None, "far"])
def test_weights_that_are_not_lengths(weight):
    graph = nx.path_graph(3)
    graph[0][1]["weight"] = weight
    with pytest.raises(InputError):
        centrality(graph, metrics="closeness", weighted=True)


# Functions of the backend with arguments, and of which graphs NetworkX computes them.
CALLS = {
    "closeness_centrality": [
        {},
        {"distance": "weight", "wf_improved": False},
        {"u": 0},
        {"u": 0, "distance": "weight"},
    ],
    "harmonic_centrality": [{}, {"distance": "weight"}],
    "betweenness_centrality": [{"weight": "weight"}],
    "edge_betweenness_centrality": [{}, {"weight": "weight", "normalized": False}],
    "eccentricity": [{}, {"weight": "weight"}, {"v": 0}, {"v": [1, 0, 1]}],
    "diameter": [{}, {"weight": "weight"}, {"e": {0: 3, 1: 2}, "usebounds": True}],
    "radius": [{}, {"weight": "weight"}],
    "pagerank": [{}, {"max_iter": 0}],
    "average_clustering": [{}, {"count_zeros": False}],
}
for kind in ("connected", "weakly_connected", "strongly_connected"):
    for name in (f"{kind}_components", f"number_{kind}_components", f"is_{kind}"):
        CALLS[name] = [{}]
CALLS |= {name: [{}] for name in ("triangles", "clustering", "transitivity")}
CALLS = [(name, options) for name, several in CALLS.items() for options in several]


@st.composite
def any_graphs(draw):
    """Draw a graph of any of NetworkX's kinds: empty, loops, parallel edges, in pieces."""
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]))
    graph = kind()
    graph.add_nodes_from(draw(st.permutations(range(draw(st.integers(0, 6))))))
    if len(graph):
        node = st.integers(0, len(graph) - 1)
        for a, b, weight in draw(st.lists(st.tuples(node, node, st.integers(0, 3)), max_size=14)):
            graph.add_edge(a, b, **({"weight": weight} if weight < 3 else {}))
    return graph


def outcome(function, *given, **options):
    """Return what a function returns, components as a set, or which error it raises."""
    try:
        found = function(*given, **options)
        # Components are listed in another order.
        return set(map(frozenset, found)) if hasattr(found, "__next__") else found
    except NotImplementedError:
        return "declined"
    except (nx.NetworkXException, TypeError, ValueError, ZeroDivisionError) as error:
        return type(error)


@pytest.mark.parametrize(("name", "options"), CALLS, ids=[f"{n}-{sorted(o)}" for n, o in CALLS])
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(graph=any_graphs())
def test_any_graph_is_networkxs(backend, name, options, graph):
    function = getattr(nx, name)
    wanted = outcome(function, graph, **options)
    found = outcome(function, graph, backend=backend, **options)
    lengths = [length for *_, length in graph.edges(data="weight", default=1)]
    if (name == "transitivity" and graph.is_directed()) or (
        "betweenness" in name and "weight" in options and 0 in lengths
    ):
        assert found in ("declined", wanted)
    elif isinstance(wanted, dict | float):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    else:
        assert found == wanted
        # Lengths that are weights are floats, as everywhere in penstock.
        assert "weight" in options or type(found) is type(wanted)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=any_graphs())
def test_a_strong_component_follows_those_that_it_reaches(backend, graph):
    directed = nx.DiGraph(graph)
    parts = list(nx.strongly_connected_components(directed, backend=backend))
    place = {node: number for number, part in enumerate(parts) for node in part}
    assert all(place[tail] >= place[head] for tail, head in directed.edges)


def test_what_is_declined_falls_back_to_networkx(backend):
    """NetworkX computes it itself where the configuration chose the backend, not the call."""
    graph = nx.DiGraph([(0, 1), (1, 2), (0, 2), (2, 0)])
    graph.add_nodes_from(range(20))  # else NetworkX is as fast, and penstock is not asked
    nx.set_edge_attributes(graph, "2", "text")
    nx.set_edge_attributes(graph, {edge: -1 if edge == (0, 1) else 1 for edge in graph.edges}, "w")
    for function, positional, named in (
        (nx.transitivity, (), {}),
        (nx.eccentricity, (0,), {"weight": lambda a, b, data: 2}),
        (nx.betweenness_centrality, (2,), {"seed": 1}),
        (nx.pagerank, (0.85, {0: 1}), {}),
        (nx.pagerank, (), {"weight": "w", "max_iter": 500}),
        (nx.clustering, (), {"weight": "w"}),
        (nx.closeness_centrality, (), {"distance": "text"}),
        (nx.pagerank, (), {"weight": "text"}),
        (nx.closeness_centrality, (), {}),
    ):
        wanted = outcome(function, graph, *positional, **named)
        with nx.config(backend_priority=[backend]):
            found = outcome(function, graph, *positional, **named)
        assert found == pytest.approx(wanted) if isinstance(wanted, dict) else found == wanted
    with pytest.raises(NotImplementedError, match="penstock"):
        nx.pagerank(graph, weight="w", backend=backend)
    with pytest.raises(nx.NodeNotFound):
        nx.closeness_centrality(graph, u=99, backend=backend)


@pytest.mark.slow
def test_the_tests_of_networkx_pass_with_the_backend(backend, tmp_path):
    """With the graphs of every call converted; NetworkX computes what the backend does not have."""
    folder = Path(nx.__file__).parent
    of = ["centrality", "components", "link_analysis"]
    files = [folder / "algorithms" / name / "tests" for name in of]
    files += [
        folder / f"algorithms/tests/test_{name}.py" for name in ("cluster", "distance_measures")
    ]
    if not all(file.exists() for file in [folder / "conftest.py", *files]):
        pytest.skip("NetworkX is installed without its tests")
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
    options += ["--backend", backend, "--fallback-to-nx"]
    python("-m", "pytest", *options, *files, cwd=tmp_path, timeout=None)


def test_signatures_and_defaults_are_networkxs():
    for name in {name for name, _ in CALLS} | {"betweenness_centrality"}:
        ours = inspect.signature(getattr(backend_interface, name)).parameters
        theirs = inspect.signature(getattr(nx, name).orig_func).parameters
        assert [(p.name, p.default) for p in ours.values()] == [
            (p.name, p.default) for p in theirs.values()
        ], name
