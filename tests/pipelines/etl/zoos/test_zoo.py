"""A zoo of small graphs: each is the graph of its rows, whatever the pieces, ranges and shards."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import writer
from penstock.errors import CapacityError, InputError
from penstock.graph import Graph
from penstock.pipelines.etl import etl
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.zoos import build as zoo_build
from penstock.pipelines.etl.zoos.runs import choose_ranges
from penstock.pipelines.job.capacity import TaskCapacity
from penstock.pipelines.tables import edge_lists


@pytest.fixture
def make_zoo(tmp_path, monkeypatch):
    """Make a zoo of tables, cut into batches, ranges and shards; return it opened."""

    def make(
        tables, *, batch_rows=1000, row_bits=16, range_rows=1 << 20, shard_size=1 << 24, **options
    ):
        home = Path(tempfile.mkdtemp(dir=tmp_path))
        for number, table in enumerate(tables):
            pq.write_table(table, home / f"{number}.parquet", row_group_size=batch_rows)
        names = tables[0].column_names
        options = {"time": "time" if "time" in names else None, "directed": False} | options
        options = {"graph_id": "graph", "self_loops": "drop"} | options
        with monkeypatch.context() as patch:
            patch.setattr(zoo_build, "BIN_ROW_BITS", row_bits)
            patch.setattr(writer, "ROWS", 10)
            patch.setattr(
                zoo_build, "choose_ranges", lambda some, _: choose_ranges(some, range_rows)
            )
            patch.setattr(zoo_build, "SHARD_SIZE", shard_size)
            etl(home, home.with_suffix(".graph"), format="zoo", **options)
        return Graph.open(home.with_suffix(".graph"))

    return make


def content(graph, first, stop):
    """Return the ids of some nodes, and their rows as (source, target, columns...)."""
    rows, ids = graph.csr().row_range(first, stop), graph.user_ids().to_pylist()
    columns = dict(rows.columns())
    if "relations" in columns:
        columns["relations"] = [graph.manifest.relations[n] for n in rows.relations]
    ends = ([ids[n] for n in part] for part in (rows.sources(), rows.indices))
    assert np.all((rows.indices >= first) & (rows.indices < stop))
    return ids[first:stop], list(zip(*ends, *columns.values(), strict=True))


def read_graphs(graph):
    """Return the content of each graph by the user's id."""
    of, found = np.asarray(graph.node_column("graph")), {}
    for i, row in enumerate(pq.read_table(graph.path / "graphs.parquet").to_pylist()):
        first, stop = row["first"], row["first"] + row["nodes"]
        assert np.all(of[first:stop] == i)
        found[row["id"]] = content(graph, first, stop)
        assert len(found[row["id"]][1]) == row["edges"]
    assert len(found) == graph.manifest.graphs
    return found


def alone(table, name, home, options):
    """Return the content of one graph, made of its rows alone."""
    rows = table.filter(pc.equal(table["graph"], pa.scalar(name, table["graph"].type)))
    pq.write_table(rows.drop_columns(["graph"]), home / "alone.parquet")
    etl(home / "alone.parquet", home / "alone", overwrite=True, cluster="threads", **options)
    graph = Graph.open(home / "alone")
    return content(graph, 0, graph.num_nodes)


def bytes_of(graph):
    return {name: entry.sha256 for name, entry in graph.manifest.files.items()}


@st.composite
def zoos(draw):
    count = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graphs = random.integers(-3, draw(st.integers(-2, 12)), count)
    ends = random.integers(-5, draw(st.integers(-4, 6)), (2, count)) * draw(
        st.sampled_from([1, 10**15])
    )
    if draw(st.booleans()):
        graphs = np.sort(graphs)
    table = {"graph": graphs, "source": ends[0], "target": ends[1]}
    if draw(st.booleans()):
        table["graph"] = [f"graph {g}" for g in graphs]
    if draw(st.booleans()):
        table |= {"source": [f"é{i}" for i in ends[0]], "target": [f"é{i}" for i in ends[1]]}
    if draw(st.booleans()):
        table["weight"] = random.random(count, dtype=np.float32)
    relation = draw(st.sampled_from(["none", "string", "int64"]))
    if relation != "none":
        numbers = random.integers(0, draw(st.integers(1, 5)), count)
        table["relation"] = [f"r{n}" for n in numbers] if relation == "string" else numbers
    if draw(st.booleans()):
        table["time"] = random.integers(0, 100, count)
    return pa.table(table)


CHOICES = {
    "directed": st.booleans(),
    "self_loops": st.sampled_from(["drop", "keep"]),
    "duplicates": st.sampled_from(["sum", "max", "first", "keep"]),
    "min_degree": st.integers(0, 3),
    "drop_isolated": st.booleans(),
}


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=zoos(),
    options=st.fixed_dictionaries(CHOICES),
    merge_times=st.booleans(),
    batch_rows=st.integers(1, 40),
    pieces=st.integers(1, 3),
    shard_size=st.integers(1, 60),
    row_bits=st.integers(0, 5),
)
def test_a_graph_of_a_zoo_is_the_graph_of_its_rows(
    tmp_path, make_zoo, table, options, merge_times, batch_rows, pieces, shard_size, row_bits
):
    if "time" in table.column_names and options["duplicates"] != "keep":
        options["merge_times"] = merge_times
    cuts = np.linspace(0, len(table), pieces + 1).astype(int)
    tables = [table.slice(a, b - a) for a, b in pairwise(cuts)]
    graph = make_zoo(
        tables,
        batch_rows=batch_rows,
        range_rows=8,
        shard_size=shard_size,
        row_bits=row_bits,
        **options,
    )
    graph.validate()
    names = table["graph"].to_pylist()
    options["time"] = "time" if "time" in table.column_names else None
    found = read_graphs(graph)
    assert list(found) == sorted({*names})
    assert found == {name: alone(table, name, tmp_path, options) for name in found}
    # The same files, whatever the pieces, batches, ranges and bins.
    whole = make_zoo([table], shard_size=shard_size, **options)
    assert bytes_of(whole) == bytes_of(graph)


def table_of(rows, **columns):
    graphs, sources, targets = zip(*rows, strict=True)
    return pa.table({"graph": graphs, "source": sources, "target": targets, **columns})


def random_table(graphs, edges, seed=0):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "graph": random.integers(0, graphs, edges),
            "source": random.integers(0, 9, edges),
            "target": random.integers(0, 9, edges),
            "weight": random.random(edges, dtype=np.float32),
        }
    )


def test_shards_end_where_graphs_end(make_zoo):
    graph = make_zoo([random_table(50, 3000)], shard_size=200, range_rows=150)
    table = pq.read_table(graph.path / "graphs.parquet").to_pandas()
    first = set(table["first"])
    assert graph.num_shards > 10
    for entry in graph.manifest.shards:
        assert entry.start in first
        inside = table[(table["first"] >= entry.start) & (table["first"] < entry.stop)]
        assert inside["edges"].sum() == entry.edges
        assert len(inside) == 1 or entry.edges + entry.stop - entry.start <= 200


def test_unsigned_ids_come_back(tmp_path):
    ids = np.array([0, 5, 2**63, 2**64 - 1], np.uint64)
    table = pa.table({"graph_id": ids[[3, 3]], "src": ids[[3, 1]], "dst": ids[[2, 0]]})
    pq.write_table(table, tmp_path / "zoo.parquet")
    etl(tmp_path / "zoo.parquet", tmp_path / "zoo", format="zoo")
    found = read_graphs(Graph.open(tmp_path / "zoo"))
    assert found[2**64 - 1][0] == ids.tolist()


def test_dropped_nodes_leave_an_empty_graph(make_zoo):
    table = table_of([("a", 1, 1), ("b", 1, 2), ("b", 2, 3), ("c", 4, 4)])
    found = read_graphs(make_zoo([table], drop_isolated=True))
    assert {name: len(nodes) for name, (nodes, _) in found.items()} == {"a": 0, "b": 3, "c": 0}
    nothing = make_zoo([table_of([("a", 1, 1)])], drop_isolated=True)
    assert read_graphs(nothing) == {"a": ([], [])}


def test_a_graph_too_large_for_a_worker_is_refused(make_zoo, monkeypatch):
    monkeypatch.setattr(EtlJob, "capacity", TaskCapacity(2, 100_000))
    with pytest.raises(CapacityError, match="graph"):
        make_zoo([random_table(1, 5000)])


def test_rows_without_ends_are_nodes_and_graphs(tmp_path):
    rows = "7,1,2,a,0.5,3\n7,3,,,,\n7,,4,,,\n8,,,,,\n9,1,1,b,1,4\n"
    (tmp_path / "zoo.csv").write_text(f"graph_id,src,dst,relation,weight,t\n{rows}")
    etl(tmp_path / "zoo.csv", tmp_path / "zoo", format="zoo", time="t")
    found = read_graphs(Graph.open(tmp_path / "zoo"))
    assert found == {
        7: ([1, 2, 3, 4], [(1, 2, 0.5, "a", 3), (2, 1, 0.5, "a", 3)]),
        8: ([], []),
        9: ([1], [(1, 1, 1.0, "b", 4)]),
    }
    for bad in (",1,2,a,1,1\n", "7,1,2,,1,1\n", "7,1,2,a,,1\n"):  # what a row must have
        (tmp_path / "zoo.csv").write_text(f"graph_id,src,dst,relation,weight,t\n{rows}{bad}")
        with pytest.raises(InputError, match="zoo.csv, row 7"):
            etl(tmp_path / "zoo.csv", tmp_path / "bad", format="zoo", time="t")
    (tmp_path / "zoo.csv").write_text("graph_id,src,dst\n,1,2\n")
    with pytest.raises(InputError, match="zoo.csv"):  # no row remains
        etl(tmp_path / "zoo.csv", tmp_path / "bad", format="zoo", on_bad_rows="skip")


def test_a_list_of_edges_may_be_longer_than_what_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(edge_lists, "_ROWS", 2)
    lists = {"a": "1 2\n2 3\n3 4\n4 5\n5 1\n", "b": "1 2\n"}
    (tmp_path / "lists").mkdir()
    for name, text in lists.items():
        (tmp_path / f"lists/{name}.txt").write_text(text)
    etl(tmp_path / "lists", tmp_path / "zoo", format="edgelists", cluster="threads")
    found = read_graphs(Graph.open(tmp_path / "zoo"))
    assert {name: len(edges) for name, (_, edges) in found.items()} == {"a": 10, "b": 2}
