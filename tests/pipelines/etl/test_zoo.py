"""A zoo of small graphs against pandas: the same graphs whatever the pieces, ranges and shards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import CapacityError, InputError, UsageError
from penstock.graph import Graph
from penstock.pipelines.etl.batch import BadRow, Batch, Layout, Piece
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.run import Run
from penstock.pipelines.etl.workplace import Workplace
from penstock.pipelines.etl.zoo import build_zoo
from penstock.pipelines.etl.zoo_tasks import Range, choose_ranges
from penstock.pipelines.etl.zoo_write import cut_graphs

EDGE_COLUMNS = ("weight", "relation", "time")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from distributed import Client

    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as client:
        yield client


@pytest.fixture
def make_zoo(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Build a zoo of tables in memory, a piece each, cut into batches; return it opened."""
    inputs: dict[str, list[Batch]] = {}
    reader = SimpleNamespace(read_piece=lambda piece, layout, options: iter(inputs[piece.path]))
    monkeypatch.setitem(sys.modules, "penstock.pipelines.etl.read", reader)
    count = 0

    def make(
        tables: list[pa.Table], *, batch_rows: int = 1000, range_bytes: int | None = None,
        shard_size: int = 1 << 24, bad: tuple[BadRow, ...] = (), memory: int = 1 << 30,
        id_type: str = "int64", report: EtlReport | None = None, root: Path | None = None,
        **options: Any,
    ) -> Graph:
        nonlocal count
        count += 1
        inputs.clear()
        pieces = []
        for number, table in enumerate(tables):
            name = f"piece {number}"
            inputs[name] = [
                Batch(table.slice(start, batch_rows), bad if start == 0 else (),
                      len(bad) if start == 0 else 0)
                for start in range(0, max(len(table), 1), batch_rows)
            ]
            pieces.append(Piece(name, "parquet", bytes=table.nbytes, number=number))
        has = {c: c if c in tables[0].column_names else None for c in EDGE_COLUMNS}
        home = tmp_path / str(count) if root is None else root
        place = Workplace(home / "graph", home / "scratch")
        place.graph.mkdir(parents=True, exist_ok=True)
        place.scratch.mkdir(exist_ok=True)
        time_type = "float64" if has["time"] and tables[0]["time"].type == pa.float64() else "int64"
        layout = Layout("source", "target", graph="graph", id_type=id_type,
                        time_type=time_type, **has)
        run = Run(client, [], EtlOptions(**options), layout, place, memory, 2, True,
                  report or EtlReport(""))
        manifest = build_zoo(run, pieces, range_bytes=range_bytes, shard_size=shard_size)
        manifest.save(place.graph)
        return Graph.open(place.graph)

    return make


def read_graphs(graph: Graph) -> dict[Any, tuple[list[Any], list[tuple[Any, ...]]]]:
    """Return the zoo by the user's graph ids: nodes and rows of (source, target, columns...)."""
    csr = graph.csr()
    ids, of = graph.user_ids().to_pylist(), np.asarray(graph.node_column("graph"))
    found = {}
    for i, row in enumerate(pq.read_table(graph.path / "graphs.parquet").to_pylist()):
        first, stop = row["first"], row["first"] + row["nodes"]
        assert np.all(of[first:stop] == i)
        low, high = csr.indptr[first], csr.indptr[stop]
        assert high - low == row["edges"]
        sources, targets = csr.sources()[low:high], csr.indices[low:high]
        assert np.all((targets >= first) & (targets < stop))
        columns = {name: values[low:high] for name, values in csr.columns()}
        if "relations" in columns:
            names = graph.manifest.relations
            columns["relations"] = np.array([names[r] for r in columns["relations"]], object)
        edges = [
            (ids[u], ids[v], *values)
            for u, v, *values in zip(sources, targets, *columns.values(), strict=True)
        ]
        found[row["id"]] = (ids[first:stop], edges)
    assert len(found) == graph.manifest.graphs
    return found


def expected_graphs(
    table: pa.Table, *, directed: bool = False, self_loops: str = "drop", duplicates: str = "sum",
    min_degree: int = 0, drop_isolated: bool = False,
) -> dict[Any, tuple[list[Any], list[tuple[Any, ...]]]]:
    """Do the same with pandas, one graph at a time."""
    frame = table.to_pandas()
    columns = [name for name in ("weight", "relation", "time") if name in frame]
    found = {}
    for graph, edges in frame.groupby("graph", sort=True):
        nodes = sorted(set(edges["source"]) | set(edges["target"]))
        if not directed:
            back = edges[edges["source"] != edges["target"]]
            back = back.rename(columns={"source": "target", "target": "source"})
            edges = pd.concat([edges, back]).sort_index(kind="stable")
        if self_loops == "drop":
            edges = edges[edges["source"] != edges["target"]]
        by = ["source", "target", *(["relation"] if "relation" in columns else [])]
        edges = edges.sort_values(by, kind="stable")
        if duplicates != "keep":
            how = {"weight": duplicates, "time": "max" if duplicates == "sum" else duplicates}
            how = {name: rule for name, rule in how.items() if name in columns}
            if "weight" in how:
                edges = edges.astype({"weight": np.float64})
            edges = edges.groupby(by, sort=True, as_index=False).agg(how) if how else (
                edges.drop_duplicates(by)
            )
        for step in ([min_degree] if min_degree else []) + ([1] if drop_isolated else []):
            degrees = edges["source"].value_counts()
            if directed:
                degrees = degrees.add(edges["target"].value_counts(), fill_value=0)
            nodes = [node for node in nodes if degrees.get(node, 0) >= step]
            edges = edges[edges["source"].isin(nodes) & edges["target"].isin(nodes)]
        if "weight" in columns:
            edges = edges.astype({"weight": np.float32})
        rows = edges[["source", "target", *columns]].itertuples(index=False, name=None)
        found[graph] = (nodes, [tuple(row) for row in rows])
    return found


def bytes_of(graph: Graph) -> dict[str, str]:
    return {name: entry.sha256 for name, entry in graph.manifest.files.items()}


@st.composite
def zoos(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graphs = random.integers(-3, draw(st.integers(-2, 12)), count)
    ends = random.integers(-5, draw(st.integers(-4, 6)), (2, count)) * draw(
        st.sampled_from([1, 10**15])
    )
    if draw(st.booleans()):
        graphs = np.sort(graphs)
    table: dict[str, Any] = {"graph": graphs, "source": ends[0], "target": ends[1]}
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
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=zoos(), options=st.fixed_dictionaries(CHOICES), batch_rows=st.integers(1, 40),
       pieces=st.integers(1, 3), shard_size=st.integers(1, 60))
def test_zoo_is_what_pandas_makes(
    make_zoo: Any, table: pa.Table, options: dict[str, Any], batch_rows: int, pieces: int,
    shard_size: int,
) -> None:
    cuts = np.linspace(0, len(table), pieces + 1).astype(int)
    tables = [table.slice(a, b - a) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    graph = make_zoo(
        tables, batch_rows=batch_rows, range_bytes=1000, shard_size=shard_size, **options
    )
    graph.validate()
    expected = expected_graphs(table, **options)
    found = read_graphs(graph)
    assert list(found) == list(expected)
    for name, (nodes, edges) in expected.items():
        assert found[name][0] == nodes
        if "relation" in table.column_names:
            at = 3 if "weight" in table.column_names else 2
            relation = [str(edge[at]) for edge in edges]
            edges = [(*e[:at], r, *e[at + 1 :]) for e, r in zip(edges, relation, strict=True)]
        assert found[name][1] == edges
    # The same files, whatever the ranges.
    whole = make_zoo([table], shard_size=shard_size, **options)
    assert bytes_of(whole) == bytes_of(graph)
