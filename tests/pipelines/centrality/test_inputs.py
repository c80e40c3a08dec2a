"""Graphs from tables and text, read as they are: Parquet, TU folders, lists of edges, JSON."""

import gzip
import json

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, centrality, etl
from penstock.errors import CapacityError, InputError, PenstockError, UsageError
from penstock.pipelines.centrality.options import METRICS


def draw(count=30, *, directed=False, seed=0, names=str):
    """Return graphs of NetworkX by id; ids of nodes are far apart, weights are 1 to 4."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        size = int(rng.integers(2, 25))
        graph = nx.gnp_random_graph(size, 2.5 / size, seed=number, directed=directed)
        graph.add_edge(0, 1)
        for a, b in graph.edges:
            graph[a][b]["weight"] = float(rng.integers(1, 5))
        graph.remove_nodes_from(list(nx.isolates(graph)))
        labels = {node: names(node * 10**12 - 7) for node in graph}
        found[number * 3 - 5] = nx.relabel_nodes(graph, labels)
    return found


def rows_of(zoo):
    return [
        (name, a, b, data["weight"])
        for name, graph in zoo.items()
        for a, b, data in graph.edges(data=True)
    ]


def table_of(rows, names=("graph_id", "source", "target", "weight")):
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def values(out, column="closeness"):
    rows = pq.read_table(out / "nodes").to_pylist()
    assert len({(row["graph_id"], row["node"]) for row in rows}) == len(rows)
    return {(row["graph_id"], row["node"]): row[column] for row in rows}


def same_as_networkx(out, zoo, *, weight=None, only=None):
    found = values(out)
    wanted = {
        (name, node): value
        for name, graph in zoo.items()
        for node, value in nx.closeness_centrality(graph, distance=weight).items()
    }
    if only is not None:
        wanted = {key: value for key, value in wanted.items() if key[0] in only}
        found = {key: value for key, value in found.items() if key[0] in only}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-9), key


def matrices(out):
    """Return the distances of each graph, by its id; its nodes in the order of their ids."""
    found = {}
    for path in sorted((out / "distances").iterdir()):
        flat = np.load(path)
        nodes = pq.read_table(out / "nodes" / f"part-{path.stem}.parquet").to_pylist()
        for graph in dict.fromkeys(row["graph_id"] for row in nodes):
            names = [row["node"] for row in nodes if row["graph_id"] == graph]
            size, order = len(names), np.argsort(names)
            matrix, flat = flat[: size**2].reshape(size, size), flat[size**2 :]
            found[graph] = matrix[order][:, order]
        assert len(flat) == 0
    return found


def failures(out):
    return pq.read_table(out / "failures.parquet").to_pylist()


def compute(path, out, **options):
    options = {"metrics": "closeness", **options}
    return centrality(path, out, **options)


# -- Parquet ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graphs", [int, str], ids=["integers", "strings"])
def test_a_graph_that_returns_is_one_graph(tmp_path, monkeypatch, graphs):
    """Over rows, row groups and files, in any order."""
    monkeypatch.setattr("penstock.pipelines.centrality.inputs.table.LEAST_COST", 2_000.0)
    monkeypatch.setattr("penstock.pipelines.centrality.inputs.table.ROWS", 100)
    monkeypatch.setattr("penstock.pipelines.tables.parquet.BATCH_ROWS", 150)
    monkeypatch.setattr("penstock.pipelines.tables.parquet.LEAST_ROWS", 150)
    zoo = {graphs(name): graph for name, graph in draw(60).items()}
    rows = rows_of(zoo)
    np.random.default_rng(1).shuffle(rows)
    rows = [(graphs(a), b, c, d) for a, b, c, d in rows]
    (tmp_path / "edges").mkdir()
    half = len(rows) // 2
    pq.write_table(table_of(rows[:half]), tmp_path / "edges/a.parquet", row_group_size=150)
    pq.write_table(table_of(rows[half:]), tmp_path / "edges/b.parquet", row_group_size=150)
    report = compute(tmp_path / "edges", tmp_path / "out", weighted=True)
    assert report.pieces > 3
    same_as_networkx(tmp_path / "out", zoo, weight="weight")


def test_rows_without_ends_are_nodes_and_empty_graphs(tmp_path):
    rows = [(1, 5, 6, 1.0), (1, 9, None, None), (2, None, None, None), (3, None, 4, None)]
    pq.write_table(table_of(rows), tmp_path / "e.parquet")
    compute(tmp_path / "e.parquet", tmp_path / "out", weighted=True, metrics="closeness,pagerank")
    assert values(tmp_path / "out") == {(1, 5): 0.5, (1, 6): 0.5, (1, 9): 0, (3, 4): 0}
    graphs = pq.read_table(tmp_path / "out/graphs").to_pylist()
    assert [(row["graph_id"], row["nodes"], row["edges"]) for row in graphs] == [
        (1, 3, 1),
        (2, 0, 0),
        (3, 1, 0),
    ]


def test_bad_weights_fail_their_graphs_alone(tmp_path):
    rows = [(1, 0, 1, 2.0), (2, 0, 1, -1.0), (3, 0, 1, None), (4, 0, 1, 1.0)]
    pq.write_table(table_of(rows), tmp_path / "e.parquet")
    report = compute(tmp_path / "e.parquet", tmp_path / "out", weighted=True)
    assert report.failed == 2
    assert [row["graph_id"] for row in failures(tmp_path / "out")] == [2, 3]
    found = values(tmp_path / "out")
    assert (found[1, 0], found[2, 0], found[3, 1], found[4, 1]) == (0.5, None, None, 1.0)


def test_tables_of_other_libraries_and_arrow_files(tmp_path):
    zoo = draw(8)
    table = table_of(rows_of(zoo))
    compute(pd.DataFrame(table.to_pydict()), tmp_path / "pandas", weighted=True)
    compute(table.to_reader(), tmp_path / "reader", weighted=True)
    with pa.ipc.new_file(tmp_path / "e.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=20)
    compute(tmp_path / "e.arrow", tmp_path / "file", weighted=True)
    for out in ("pandas", "reader", "file"):
        same_as_networkx(tmp_path / out, zoo, weight="weight")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "weighted", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["weighted", "unweighted"]
)
def test_large_graphs_are_shared_over_tasks(tmp_path, monkeypatch, weighted):
    """A graph of a table, or of a zoo, whose sources are taken in shares, has the same values."""
    zoo = draw(6)
    big = nx.gnp_random_graph(120, 0.05, seed=1)
    nx.set_edge_attributes(big, 2.0, "weight")
    zoo[999] = nx.relabel_nodes(big, {n: str(n) for n in big})
    pq.write_table(table_of(rows_of(zoo)), tmp_path / "e.parquet", row_group_size=100)
    etl(tmp_path / "e.parquet", tmp_path / "zoo", format="zoo")
    options = {"metrics": ",".join(METRICS), "weighted": weighted, "distances": True}
    weight = "weight" if weighted else None
    compute(tmp_path / "e.parquet", tmp_path / "whole", **options)
    monkeypatch.setattr("penstock.pipelines.centrality.pieces.LARGE_ITEMS", 500)
    monkeypatch.setattr("penstock.pipelines.centrality.sources.LEAST_COST", 5_000.0)
    for name in ("e.parquet", "zoo"):
        report = compute(tmp_path / name, tmp_path / f"out-{name}", **options)
        assert report.failed == 0
        same_as_networkx(tmp_path / f"out-{name}", zoo, weight=weight)
        found = matrices(tmp_path / f"out-{name}")
        wanted = matrices(tmp_path / "whole")
        assert found.keys() == wanted.keys()
        for graph, matrix in wanted.items():
            np.testing.assert_array_equal(found[graph], matrix)
        for key, by in (("nodes", ["node"]), ("graphs", []), ("edges", ["source", "target"])):
            order = [(one, "ascending") for one in ["graph_id", *by]]
            one = pq.read_table(tmp_path / "whole" / key).sort_by(order)
            other = pq.read_table(tmp_path / f"out-{name}" / key).sort_by(order)
            assert one.column_names == other.column_names
            for column in one.column_names:
                mine, theirs = (table[column].to_pylist() for table in (other, one))
                if isinstance(mine[0], float):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-12)
                else:
                    assert mine == theirs
    if not weighted:
        return
    rows = [*rows_of(zoo), (999, "0", "1", -2.0)]
    pq.write_table(table_of(rows), tmp_path / "bad.parquet")
    report = compute(tmp_path / "bad.parquet", tmp_path / "out-bad", **options)
    assert failures(tmp_path / "out-bad")[0]["graph_id"] == 999
    same_as_networkx(tmp_path / "out-bad", zoo, weight="weight", only=zoo.keys() - {999})


def test_distances_that_do_not_fit_are_refused(tmp_path):
    rows = [(0, i, i + 1, 1.0) for i in range(40_000)]
    pq.write_table(table_of(rows), tmp_path / "e.parquet")
    small = ClusterSpec(cluster="threads", memory_limit="2GB")
    etl(tmp_path / "e.parquet", tmp_path / "graph")
    for name in ("e.parquet", "graph"):
        with pytest.raises(CapacityError):
            compute(tmp_path / name, tmp_path / "out", distances=True, cluster=small)
        assert not (tmp_path / "out").exists()


# -- text ---------------------------------------------------------------------------------------


def json_line(graph, name, form):
    if form == "adjacency_data":
        return {**nx.adjacency_data(graph), "id": name}
    if form == "node_link":
        return {**nx.node_link_data(graph, edges="links"), "id": name}
    if form == "node_link_edges":
        return {**nx.node_link_data(graph, edges="edges"), "graph": {"name": name}}
    if form == "dicts":
        return {"id": name, "adjacency": nx.to_dict_of_dicts(graph)}
    if form == "lists":
        return {"id": name, "adjacency": nx.to_dict_of_lists(graph)}
    edges = [[a, b, data["weight"]] for a, b, data in graph.edges(data=True)]
    return {"id": name, "edges": edges, "nodes": list(graph)}


FORMS = ["adjacency_data", "node_link", "node_link_edges", "dicts", "lists", "edges"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [int, str], ids=["integers", "strings"])
def test_json_lines(tmp_path, form, names):
    zoo = draw(12, names=lambda n: n if names is int else f"n{n}")
    zoo[1000] = nx.empty_graph(0)
    zoo[1001] = nx.Graph()
    zoo[1001].add_nodes_from([names(3), names(4)] if names is int else ["x", "y"])
    lines = [json.dumps(json_line(graph, name, form)) for name, graph in zoo.items()]
    (tmp_path / "g.jsonl").write_text("\n".join(lines) + "\n")
    weighted = form != "lists"
    report = compute(tmp_path / "g.jsonl", tmp_path / "out", weighted=weighted)
    assert (report.graphs, report.failed) == (14, 0)
    same_as_networkx(tmp_path / "out", zoo, weight="weight" if weighted else None)


def test_json_lines_say_their_direction_and_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.pipelines.etl.reading.pieces.LEAST", 2000)
    monkeypatch.setattr("penstock.pipelines.tables.json_graphs.BLOCK", 700)
    monkeypatch.setattr("penstock.pipelines.tables.text.BLOCK", 700)
    zoo = draw(30, directed=True, names=int)
    lines = []
    for number, graph in enumerate(zoo.values()):
        lines.append(json.dumps(nx.adjacency_data(graph)) + "\n")
        if number == 3:
            lines.append("\n")  # counted, and no graph
    (tmp_path / "g.jsonl").write_text("".join(lines))
    compute(tmp_path / "g.jsonl", tmp_path / "out")
    numbered = {n + (n > 3): graph for n, graph in enumerate(zoo.values())}
    same_as_networkx(tmp_path / "out", numbered)
    with gzip.open(tmp_path / "g.jsonl.gz", "wt") as file:
        file.write("".join(lines))
    compute(tmp_path / "g.jsonl.gz", tmp_path / "out2")
    same_as_networkx(tmp_path / "out2", numbered)


BAD_LINES = [
    "{no json",
    '{"id": "none"}',
    '{"id": "odd", "edges": [["a"]]}',
    '{"id": "other", "directed": true, "nodes": [], "links": []}',
    '{"id": "float", "edges": [[1.5, 2]]}',
    "[1, 2]",
]


def test_bad_lines_of_json_are_named_or_skipped(tmp_path):
    good = '{"id": "good", "edges": [["a", "b"]]}'
    for number, line in enumerate(BAD_LINES):
        path = lines_of(tmp_path / f"{number}.jsonl", [good, line])
        with pytest.raises(InputError, match=rf"{number}.jsonl, row 2"):
            compute(path, tmp_path / "out")
    with pytest.raises(InputError, match=r"a.jsonl, row 1"):
        compute(lines_of(tmp_path / "a.jsonl", BAD_LINES), tmp_path / "out")
    path = lines_of(tmp_path / "g.jsonl", [good, *BAD_LINES])
    report = compute(path, tmp_path / "out", on_bad_rows="skip")
    assert (report.graphs, report.bad_rows, report.failed) == (1, 6, 0)
    same_as_networkx(tmp_path / "out", {"good": nx.Graph([("a", "b")])})


def lists(folder, texts):
    """Write lists of edges, one graph per list."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, newline="")
    return folder


@pytest.mark.parametrize("suffix", ["edgelist", "txt", "csv.gz"])
def test_a_folder_of_edge_lists(tmp_path, suffix):
    zoo = draw(8, names=int)
    folder = lists(tmp_path / "lists", {f"alone.{suffix.removesuffix('.gz')}": "17\n"})
    (folder / "deep").mkdir()
    named = {"alone": nx.empty_graph([17]), "empty": nx.Graph()}
    (folder / f"empty.{suffix.removesuffix('.gz')}").write_text("")
    for number, graph in enumerate(zoo.values()):
        name = f"deep/g{number}" if number % 2 else f"g{number}"
        named[name] = graph
        if suffix == "edgelist":
            nx.write_edgelist(graph, folder / f"{name}.{suffix}")  # with {'weight': 2.0}
        elif suffix == "txt":
            nx.write_weighted_edgelist(graph, folder / f"{name}.{suffix}", delimiter="\t")
        else:
            rows = "".join(f"{a},{b},{d['weight']}\n" for a, b, d in graph.edges(data=True))
            with gzip.open(folder / f"{name}.{suffix}", "wt") as file:
                file.write(rows)
    given = {"weighted": True, "format": "edgelists"}
    report = compute(folder, tmp_path / "out", **given)
    assert (report.graphs, report.failed) == (10, 0)
    same_as_networkx(tmp_path / "out", named, weight="weight")
    (folder / f"torn.{suffix.removesuffix('.gz')}.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="torn"):
        compute(folder, tmp_path / "out2", **given)


def test_lists_have_one_header(tmp_path):
    texts = {"a.csv": "\ufeffperson,friend\r\n1,2\r\n2,3\r\n", "b.csv": "person,friend\n"}
    folder = lists(tmp_path / "lists", texts)
    compute(folder, tmp_path / "out", format="edgelists")
    assert values(tmp_path / "out").keys() == {("a", 1), ("a", 2), ("a", 3)}
    lists(folder, {"c.csv": "1,2\n"})
    with pytest.raises(InputError, match="c.csv"):
        compute(folder, tmp_path / "out2", format="edgelists")
    folder = lists(tmp_path / "names", {"g.txt": "anna berta\nclara dora\n"})
    compute(folder, tmp_path / "out3", header="yes", format="edgelists")
    same_as_networkx(tmp_path / "out3", {"g": nx.Graph([("clara", "dora")])})


def test_a_tu_folder(tmp_path):
    (tmp_path / "T").mkdir()
    (tmp_path / "T/T_A.txt").write_text("1, 2\n2, 1\n2, 3\n3, 2\n5, 6\n6, 5\n")
    (tmp_path / "T/T_graph_indicator.txt").write_text("1\n1\n1\n1\n2\n2\n4\n")
    compute(tmp_path / "T", tmp_path / "out")
    zoo = {1: nx.Graph([(1, 2), (2, 3)]), 2: nx.Graph([(5, 6)]), 3: nx.Graph(), 4: nx.Graph()}
    zoo[1].add_node(4)
    zoo[4].add_node(7)
    same_as_networkx(tmp_path / "out", zoo)
    assert len(pq.read_table(tmp_path / "out/graphs")) == 4
    with pytest.raises(UsageError):
        compute(tmp_path / "T", tmp_path / "out2", weighted=True)


def test_paths_that_are_not_inputs(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.txt").write_text("1 2\n")
    (tmp_path / "damaged/shards").mkdir(parents=True)
    (tmp_path / "damaged/nodes.parquet").write_bytes(b"")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/a.parquet").write_bytes(b"")
    (tmp_path / "two/b.jsonl").write_text("")
    for name, options in (
        ("nothing", {}),
        ("empty", {}),
        ("one.txt", {}),
        ("one.txt", {"format": "json"}),
        ("damaged", {}),
        ("two", {}),
    ):
        with pytest.raises(PenstockError, match=name):
            compute(tmp_path / name, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()


def lines_of(path, bodies):
    lines = [one if isinstance(one, str) else json.dumps(one) for one in bodies]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("least", [8, 1 << 22], ids=["two tasks", "one task"])
def test_lines_of_one_id_are_not_one_graph(tmp_path, monkeypatch, least):
    """What several graphs are called names none of them: joined, their values would be wrong."""
    monkeypatch.setattr("penstock.pipelines.etl.reading.pieces.LEAST", least)
    bodies = [{"id": 5, "edges": [[0, 1]]}, {"id": 2, "edges": [[0, 1]]}]
    path = lines_of(tmp_path / "a.jsonl", [*bodies, {"id": 5, "nodes": [3], "edges": []}])
    for job in (compute, etl):
        with pytest.raises(InputError, match="a.jsonl") as error:
            job(path, tmp_path / "out")
        assert "5" in str(error.value)


def test_ids_that_are_words_in_one_task_and_numbers_in_others(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.pipelines.etl.reading.pieces.LEAST", 8)
    bodies = [
        {"id": 10, "edges": [[0, 1]]},
        {"id": "a", "edges": [["x", 7]]},
        {"id": 9, "edges": [[2, 10]], "nodes": ["7"]},
    ]
    path = lines_of(tmp_path / "a.jsonl", bodies)
    assert not centrality(path, tmp_path / "out", metrics="closeness").failed
    found = [("10", "0"), ("10", "1"), ("9", "10"), ("9", "2"), ("9", "7"), ("a", "7"), ("a", "x")]
    assert list(values(tmp_path / "out")) == found


def test_lists_of_one_name_are_not_one_graph(tmp_path):
    folder = lists(tmp_path / "lists", {"a.txt": "0 1\n", "a.edgelist": "1 2\n"})
    with pytest.raises(InputError, match="a.txt"):
        compute(folder, tmp_path / "out", format="edgelists")


@pytest.mark.parametrize("text", ["0 1 {3}\n", "1,,2\n", ",1\n", "1;2;3\n", "1 2\n", "1 2 3 4\n"])
def test_a_list_with_a_bad_line(tmp_path, text):
    folder = lists(tmp_path / "lists", {"a.txt": f"0 1 2\n{text}", "b.txt": "0 1 2\n"})
    given = {"weighted": True, "format": "edgelists"}
    with pytest.raises(InputError, match="a.txt, row 2"):
        compute(folder, tmp_path / "out", **given)
    assert compute(folder, tmp_path / "out", on_bad_rows="skip", **given).bad_rows == 1
    assert len(values(tmp_path / "out")) == 4


def test_weights_whose_sums_overflow(tmp_path):
    """A path of infinite length would look like none."""
    path = tmp_path / "a.parquet"
    pq.write_table(table_of([(1, 0, 1, 1e308), (1, 1, 2, 1e308), (2, 0, 1, 1e280)]), path)
    options = {"metrics": "closeness", "weighted": True}
    assert centrality(path, tmp_path / "out", **options).failed == 1
    assert [row["graph_id"] for row in failures(tmp_path / "out")] == [1]


# -- one rule a metric, whatever the input ----------------------------------------------------


DOORS = ["networkx", "parquet", "edge lists", "edges", "adjacency", "etl", "etl keep"]


def through(door, folder, edges, graph, directed):
    """Write a graph as a door takes it."""
    if door.startswith("etl"):
        pq.write_table(table_of(edges, ("source", "target", "weight")), folder / "e.parquet")
        given = {"directed": directed, "self_loops": "keep"}
        given["duplicates"] = "keep" if door == "etl keep" else "sum"
        etl(folder / "e.parquet", folder / "g", **given)
        return folder / "g"
    if door == "parquet":
        pq.write_table(table_of([(0, *edge) for edge in edges]), folder / "e.parquet")
        return folder / "e.parquet"
    if door == "edge lists":
        return lists(folder / "lists", {"g.txt": "".join(f"{a} {b} {w}\n" for a, b, w in edges)})
    return lines_of(
        folder / "g.jsonl", [{"edges": edges} if door == "edges" else nx.adjacency_data(graph)]
    )


@pytest.mark.parametrize(("directed", "weighted"), [(False, True), (True, False)])
@pytest.mark.parametrize("door", DOORS)
def test_pagerank_adds_parallel_edges_and_lengths_take_the_shortest(
    tmp_path, door, weighted, directed
):
    edges = [(0, 1, 5.0), (0, 1, 2.0), (1, 0, 1.0), (0, 2, 1.0), (1, 2, 1.0), (2, 2, 3.0)]
    edges += [(2, 2, 1.0), (2, 3, 0.5), (3, 2, 0.5), (3, 4, 4.0)]
    graph = (nx.MultiDiGraph if directed else nx.MultiGraph)()
    graph.add_weighted_edges_from(edges)
    weight = "weight" if weighted else None
    source = graph if door == "networkx" else through(door, tmp_path, edges, graph, directed)
    metrics = ["pagerank", "closeness"]
    if door == "etl" and weighted:
        metrics = ["pagerank"]  # lengths are added, too
    elif door == "etl":
        graph = (nx.DiGraph if directed else nx.Graph)(graph)
    given = {"metrics": ",".join(metrics), "weighted": weighted}
    if door == "networkx":
        found = centrality(source, **given)
    else:
        if not door.startswith("etl"):
            given["directed"] = directed
        if door == "edge lists":
            given["format"] = "edgelists"
        centrality(source, tmp_path / "out", **given)
        table = pq.read_table(tmp_path / "out/nodes")
        nodes = table["node"].to_pylist()
        found = {name: dict(zip(nodes, table[name].to_pylist(), strict=True)) for name in metrics}
    wanted = {
        "pagerank": nx.pagerank(graph, weight=weight),
        "closeness": nx.closeness_centrality(graph, distance=weight),
    }
    for name in metrics:
        assert found[name] == pytest.approx(wanted[name], rel=1e-9)


def test_communities_add_parallel_edges(tmp_path):
    edges = [(0, 1)] * 5 + [(1, 2)] + [(2, 3)] * 5 + [(3, 0)]
    pq.write_table(table_of([(0, *ends, 1.0) for ends in edges]), tmp_path / "e.parquet")
    centrality(tmp_path / "e.parquet", tmp_path / "out", metrics="leiden")
    wanted = centrality(nx.MultiGraph(edges), metrics="leiden")
    found = pq.read_table(tmp_path / "out/graphs")["modularity"].to_pylist()
    assert found == pytest.approx([wanted["modularity"]])


def test_pagerank_of_a_large_graph_adds_parallel_edges(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    edges = [(0, int(a), int(b), 1.0) for a, b in random.integers(0, 9, (60, 2))]
    pq.write_table(table_of([*edges, (1, 0, 1, 1.0)]), tmp_path / "e.parquet")
    given = {"format": "zoo", "duplicates": "keep", "self_loops": "keep"}
    etl(tmp_path / "e.parquet", tmp_path / "zoo", **given)
    graph = nx.MultiGraph([edge[1:3] for edge in edges])
    monkeypatch.setattr("penstock.pipelines.centrality.pieces.LARGE_ITEMS", 50)
    for name in ("e.parquet", "zoo"):
        compute(tmp_path / name, tmp_path / f"{name}-out", metrics="pagerank")
        rows = pq.read_table(tmp_path / f"{name}-out/nodes").to_pylist()
        found = {row["node"]: row["pagerank"] for row in rows if row["graph_id"] == 0}
        assert found == pytest.approx(nx.pagerank(graph), rel=1e-9)
