"""Predictions with a base: those without one to the last bit, of which only some are computed."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import etl, gnn
from penstock.errors import InputError

NODES, REACH = 1500, 4  # a ring in which each node has the next four as neighbours


def write_tables(folder, *, moved=(), cut=(), more=(), copies=1, order=1, kinds=None):
    """Write the ring: nodes ``moved`` have other features, edges of ``cut`` are gone.

    copies  of each edge, of other weights; order: of the edges, -1: the last first
    kinds   of some nodes, others are plain; None: all
    """
    random = np.random.default_rng(0)
    source = np.repeat(np.arange(NODES), REACH)
    target = (source + np.tile(np.arange(1, REACH + 1), NODES)) % NODES
    kept = ~np.isin(source, cut)
    added = np.array(more, np.int64).reshape(-1, 2).T
    ends = np.concatenate([np.stack([source[kept], target[kept]]), added], axis=1)
    ends = np.tile(ends, copies)
    count = int(max(NODES - 1, ends.max())) + 1
    shape = NODES + 2, 20
    values = (random.normal(size=shape) * (random.random(shape) < 0.4))[:count]
    values[list(moved)] += 1
    weights = (ends * [[3], [7]]).sum(axis=0) % 10 + 1
    weights = weights + np.arange(len(weights)) * copies // len(weights) / 3
    ends, weights = ends[:, ::order], weights[::order]
    folder.mkdir()
    edges = {"src": ends[0], "dst": ends[1], "weight": weights.astype(np.float32)}
    nodes = {"id": np.arange(count), "label": np.arange(count) // 400}
    nodes["x"] = pa.array(list(values.astype(np.float32)))
    nodes["kind"] = [(kinds or {}).get(node, "plain") for node in range(count)]
    nodes["split"] = np.where(np.arange(count) % 3, "train", "test")
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")


def make_graph(folder, *, directed=False, base=None, **changes):
    write_tables(folder, **changes)
    table = {"nodes": folder / "nodes.parquet", "label": "label", "split": "split"}
    etl(
        folder / "edges.parquet",
        folder / "g",
        feature_columns=["kind" if "kinds" in changes else "x"],
        directed=directed,
        duplicates="keep" if "copies" in changes else "sum",
        base=base and base / "g",
        **table,
    )


def table(out):
    return pq.read_table(out / "part-00000.parquet")


def same(one, other):
    """Whether two outputs have the same rows, to the bit."""
    one, other = table(one), table(other)
    return one.schema.equals(other.schema) and one.equals(other)


MODELS = {
    "gcn, weighted, three layers": {"layers": 3, "weighted": True, "norm": "layer", "hidden": 40},
    "sage max": {"model": "sage", "aggregate": "max", "hidden": 40},
    "gat": {"model": "gat", "heads": 2, "hidden": 40},
    "sparse": {"model": "sage", "feature_layout": "sparse", "hidden": 40},
    "one layer, sparse": {"layers": 1, "feature_layout": "sparse"},
}
CHANGES = {
    "rows": {"cut": (700, 701), "more": ((50, 53), (50, 57))},
    "features": {"moved": (300, 301)},
    "all": {"cut": (9,), "moved": (1200,), "more": ((100, NODES), (NODES, NODES + 1))},
}


SLOW = ("sage max", "sparse")


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in MODELS]
)
def test_the_result_is_that_of_a_whole_prediction(tmp_path, model):
    options = MODELS[model]
    directed = model in ("sage", "gat")
    make_graph(tmp_path / "before", directed=directed)
    gnn.train(tmp_path / "before/g", tmp_path / "run", epochs=3, **options)
    columns = {"embeddings": True, "probabilities": True}
    gnn.predict(tmp_path / "run", tmp_path / "p0", **columns)
    for number, (name, changes) in enumerate(CHANGES.items()):
        day = tmp_path / str(number)
        make_graph(day, directed=directed, base=tmp_path / "before", **changes)
        given = {"graph": day / "g", **columns}
        gnn.predict(tmp_path / "run", day / "whole", **given)
        report = gnn.predict(tmp_path / "run", day / "p", base=tmp_path / "p0", **given)
        assert same(day / "whole", day / "p"), name
        assert not same(day / "p", tmp_path / "p0")
        assert 0 < report.from_base.made < 150
        again = gnn.predict(tmp_path / "run", day / "q", base=day / "p", **given)
        assert again.from_base.made == 0
        assert same(day / "q", day / "p")


def test_fewer_nodes_and_a_base_of_a_base(tmp_path):
    make_graph(tmp_path / "before", more=((3, NODES), (NODES, NODES + 1)))
    gnn.train(tmp_path / "before/g", tmp_path / "run", epochs=2, hidden=8)
    gnn.predict(tmp_path / "run", tmp_path / "p0")
    base = tmp_path / "p0"
    for number, changes in enumerate(({}, {"cut": (4,)}, {"cut": (4, 5), "moved": (8,)})):
        day = tmp_path / str(number)
        make_graph(day, base=tmp_path / "before", **changes)
        gnn.predict(tmp_path / "run", day / "whole", graph=day / "g")
        gnn.predict(tmp_path / "run", day / "p", graph=day / "g", base=base)
        assert same(day / "whole", day / "p")
        base = day / "p"


def test_a_new_category_moves_the_columns_of_others(tmp_path):
    kinds = {node: "zoo" if node % 100 else "first" for node in range(0, NODES, 50)}
    make_graph(tmp_path / "before", kinds=kinds)
    gnn.train(tmp_path / "before/g", tmp_path / "run", epochs=2, hidden=8)
    gnn.predict(tmp_path / "run", tmp_path / "p0")
    today = kinds | {7: "early", 50: "plain", 150: "first", 100: "zoo"}
    make_graph(tmp_path / "after", kinds=today, base=tmp_path / "before")
    given = {"graph": tmp_path / "after/g"}
    gnn.predict(tmp_path / "run", tmp_path / "whole", **given)
    report = gnn.predict(tmp_path / "run", tmp_path / "p", base=tmp_path / "p0", **given)
    assert 0 < report.from_base.made < 150
    assert same(tmp_path / "whole", tmp_path / "p")


def test_parallel_edges_in_another_order_are_added_in_it(tmp_path):
    make_graph(tmp_path / "before", copies=3)
    make_graph(tmp_path / "after", copies=3, order=-1, base=tmp_path / "before")
    gnn.train(tmp_path / "before/g", tmp_path / "run", epochs=2, hidden=8, weighted=True)
    gnn.predict(tmp_path / "run", tmp_path / "p0")
    given = {"graph": tmp_path / "after/g"}
    gnn.predict(tmp_path / "run", tmp_path / "whole", **given)
    gnn.predict(tmp_path / "run", tmp_path / "p", base=tmp_path / "p0", **given)
    assert same(tmp_path / "whole", tmp_path / "p")
    assert not same(tmp_path / "p", tmp_path / "p0")


def test_only_nodes_within_as_many_hops_as_layers_are_computed(tmp_path):
    make_graph(tmp_path / "before")
    make_graph(tmp_path / "after", base=tmp_path / "before", cut=(700,))
    gnn.train(tmp_path / "before/g", tmp_path / "run", epochs=2, model="sage", layers=3, hidden=8)
    gnn.predict(tmp_path / "run", tmp_path / "p")
    given = {"graph": tmp_path / "after/g", "base": tmp_path / "p"}
    report = gnn.predict(tmp_path / "run", tmp_path / "q", **given)
    # Five rows differ (that of 700 and of its four neighbours); a hop reaches four more either way.
    assert report.from_base.made == 5 + 2 * 2 * REACH


def test_a_base_of_another_run_graph_or_kind_is_refused(tmp_path):
    make_graph(tmp_path / "before")
    make_graph(tmp_path / "turned", directed=True)
    for name in ("run", "other"):
        gnn.train(tmp_path / "before/g", tmp_path / name, epochs=2, hidden=8, seed=len(name))
    gnn.predict(tmp_path / "run", tmp_path / "p")
    given = {"base": tmp_path / "p"}
    for run, more in (
        ("other", given),
        ("run", {**given, "embeddings": True}),
        ("run", {"base": tmp_path / "run"}),
        ("run", {**given, "parts": 2}),
        ("run", {**given, "graph": tmp_path / "turned/g"}),
    ):
        with pytest.raises(Exception) as found:  # noqa: PT011
            gnn.predict(tmp_path / run, tmp_path / "q", **more)
        assert not (tmp_path / "q").exists()
        assert found.type.__module__ == InputError.__module__
