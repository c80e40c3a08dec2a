"""From Python, what is no path where one belongs is bad usage, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import centrality, embed, gnn, similar, walk, walk_array, word2vec
from penstock.errors import UsageError
from penstock.graph import Graph

PLACES: dict[str, Callable[[Graph, Any], Any]] = {
    "embed.train, graph": lambda graph, it: embed.train(it, "run"),
    "embed.train, run": lambda graph, it: embed.train(graph, it),
    "embed.evaluate": lambda graph, it: embed.evaluate(it),
    "embed.predict": lambda graph, it: embed.predict(it, head="a"),
    "embed.export, run": lambda graph, it: embed.export(it, "out"),
    "embed.vectors": lambda graph, it: embed.vectors(it),
    "gnn.train, graph": lambda graph, it: gnn.train(it, "run"),
    "gnn.train, run": lambda graph, it: gnn.train(graph, it),
    "gnn.predict, run": lambda graph, it: gnn.predict(it, "out"),
    "gnn.predict, out": lambda graph, it: gnn.predict("run", it),
    "gnn.evaluate": lambda graph, it: gnn.evaluate(it),
    "gnn.plan": lambda graph, it: gnn.plan(it),
    "walk, graph": lambda graph, it: walk(it, "out"),
    "walk, out": lambda graph, it: walk(graph, it),
    "walk_array": lambda graph, it: walk_array(it),
    "word2vec, out": lambda graph, it: word2vec(graph, it),
    "centrality, out": lambda graph, it: centrality(graph, [it]),
    "similar": lambda graph, it: similar(it, "out"),
    "Graph.open": lambda graph, it: Graph.open(it),
}


@pytest.mark.parametrize("given", [5, None, ["a"], 0.5, b"a"], ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_path_is_refused(
    make_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, given: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = make_graph(features="dense", labels=2)
    with pytest.raises(UsageError) as error:
        PLACES[place](graph, given)
    assert error.value.what
    assert error.value.expected == "text, or a Path"
    assert error.value.got in (repr(given), repr([given]))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"], "nothing is written"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: word2vec(5, "out"), "one at least, got 5"),  # type: ignore[arg-type]
        (lambda: word2vec(None, "out"), "one at least, got None"),  # type: ignore[arg-type]
        (lambda: word2vec(["a", 5], "out"), "one at least, got .*5"),  # type: ignore[list-item]
        (lambda: centrality(5, "out"), "a path, a Graph, .* got int"),  # type: ignore[call-overload]
        (lambda: centrality(None), "a path, a Graph, .* got NoneType"),
        (lambda: centrality([5]), "a path, a Graph, .* got int"),
    ],
)
def test_what_is_no_input_is_refused(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        call()


@pytest.mark.parametrize("given", [5, ["a"], b"a"], ids=repr)
@pytest.mark.parametrize(
    ("make", "flag"),
    [
        (lambda it: embed.EmbedOptions(recipe=it), "--recipe"),
        (lambda it: embed.EmbedOptions(init=it), "--init"),
        (lambda it: embed.EvaluateOptions(triples=it), "--triples"),
        (lambda it: embed.EvaluateOptions(graph=it), "--graph"),
        (lambda it: embed.PredictOptions(head="a", graph=it), "--graph"),
        (lambda it: gnn.train("g", "run", spec=it), "--spec"),
        (lambda it: gnn.evaluate("run", graph=it), "--graph"),
        (lambda it: walk("g", "out", starts=it), "--starts"),
        (lambda it: word2vec("g", "out", init=it), "--init"),
        (lambda it: centrality("g", "out", scratch=it), "--scratch"),
    ],
)
def test_an_option_that_is_no_path_is_named(
    make: Callable[[Any], Any], flag: str, given: Any
) -> None:
    with pytest.raises(UsageError) as error:
        make(given)
    assert error.value.what == f"option {flag} has a bad value"
    assert error.value.expected == "text, or a Path"
    assert error.value.got == repr(given)
