import json

import pytest

from penstock.errors import CorruptFile
from penstock.pipelines.cli import run
from penstock.pipelines.validate import validate


def test_a_whole_graph_is_called_whole(make_graph, capsys):
    graph = make_graph(shard_edges=100)
    found = validate(graph.path)
    assert (found.nodes, found.arcs) == (graph.num_nodes, graph.num_edges)
    assert found.files == len(graph.manifest.files)
    assert run(["validate", str(graph.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_a_broken_graph_exits_with_one_and_says_what(make_graph, capsys):
    graph = make_graph()
    path = graph.path / "shards/00000/indices.npy"
    path.write_bytes(path.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    with pytest.raises(CorruptFile):
        validate(graph.path)
    assert run(["validate", str(graph.path), "--json", "-q"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "CorruptFile"
    assert "shards/00000/indices.npy" in err
