"""ETL of tables of edges; what comes of random options is compared in tests/golden."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from penstock import Graph, etl
from penstock.errors import InputError, UsageError
from penstock.output import Output
from penstock.pipelines.etl.nodes import number as number_nodes


def random_edges(seed, kind="int", rows=400, ids=60):
    random = np.random.default_rng(seed)
    # Squaring makes some ids frequent, so that there are duplicates, loops and rare nodes.
    ends = (random.random((rows, 2)) ** 2 * ids).astype(np.int64)
    names = {
        "int": ends * 7 - 100,
        "wide": ends * 2**55 - 2**60,
        "string": np.char.add("n", ends.astype(str)),
    }[kind]
    return pd.DataFrame(
        {
            "src": names[:, 0],
            "dst": names[:, 1],
            "weight": random.integers(1, 50, rows).astype(np.float32) / 8,
            "relation": np.char.add("r", random.integers(0, 4, rows).astype(str)),
            "time": random.integers(0, 1000, rows),
        }
    )


def matrix_of(graph):
    csr = graph.csr()
    weights = np.ones(csr.edges) if csr.weights is None else csr.weights
    return sp.csr_matrix((weights, csr.indices, csr.indptr), (csr.rows, csr.rows)).toarray()


def pairs_of(graph):
    ids, csr = graph.user_ids().to_pylist(), graph.csr()
    return [ids[u] + ids[v] for u, v in zip(csr.sources(), csr.indices, strict=True)]


def test_internal_ids_follow_the_order_asked_for(make):
    table, ids = random_edges(3), {}
    for relabel, seed in (("sorted", 0), ("degree", 0), ("random", 0), ("random", 1)):
        graph, _ = make(table, relabel=relabel, relation="none", seed=seed)
        ids[relabel, seed] = graph.user_ids().to_pylist()
        if relabel == "degree":
            assert np.all(np.diff(graph.degrees) <= 0)
    assert ids["sorted", 0] == sorted(ids["sorted", 0]) == sorted(ids["random", 0])
    assert len(set(map(tuple, ids.values()))) == 4


@pytest.mark.parametrize("kind", ["int", "wide", "string"])
def test_same_bytes_however_the_input_is_cut(tmp_path, make, kind, monkeypatch):
    table = random_edges(5, kind, rows=3000, ids=500)
    options = {name: name for name in ("weight", "relation", "time")}
    options |= {"relabel": "random", "split_edges": (0.8, 0.1, 0.1)}
    whole, _ = make(table, **options)
    many = tmp_path / "many"
    many.mkdir()
    for i, start in enumerate(range(0, 3000, 450)):
        table.iloc[start : start + 450].to_parquet(many / f"part-{i}.parquet", row_group_size=100)
    # Several ranges of ids, too.
    monkeypatch.setattr(number_nodes, "ID_BYTES", 10**7)
    cut, _ = make(many, name="cut", **options)
    assert whole.manifest.files == cut.manifest.files
    assert len(list((cut.path / "heldout").iterdir())) == 2


def test_weights_of_both_directions_are_bitwise_equal(make):
    table = random_edges(7, rows=5000, ids=20)
    table["weight"] = np.random.default_rng(0).random(5000).astype(np.float32)
    matrix = matrix_of(make(table, rows=999, weight="weight", directed=False)[0])
    np.testing.assert_array_equal(matrix, matrix.T)


def test_an_edge_listed_in_both_directions_is_counted(make):
    text = "src,dst,weight\na,b,1\na,b,2\nb,a,6\nc,b,8\nc,c,1\n"
    for how, ab in (("add", 9), ("once", 3)):
        graph, report = make(text, "e.csv", both_directions=how)
        assert report.in_both_directions == 1
        weights = dict(zip(pairs_of(graph), graph.csr().weights.tolist(), strict=True))
        assert weights == {"ab": ab, "ba": ab, "bc": 8, "cb": 8}
        assert graph.manifest.made["options"]["both_directions"] == how


@pytest.mark.parametrize("prefix", ["", "user-", "https://example.org/users/"])
def test_text_ids_are_numbered_in_the_order_of_their_bytes(make, prefix):
    ends = [str(n) for n in np.random.default_rng(7).integers(0, 3000, 2000)]
    ends += ["a", "a\0", "a\0b", "Ä", "ä-long-enough-to-tie", "ä-long-enough-to-", "ä-long-enough!"]
    ids = [prefix + end for end in ends]
    graph, _ = make(pd.DataFrame({"src": ids, "dst": ids[::-1]}))
    assert graph.user_ids().to_pylist() == sorted(set(ids), key=str.encode)


@pytest.mark.parametrize("once", [True, False])
def test_a_symmetric_matrix_lists_each_edge_twice(tmp_path, make, once):
    matrix = sp.random(40, 40, 0.1, "csr", np.float32, random_state=1)
    matrix = matrix + matrix.T if once else matrix
    sp.save_npz(tmp_path / "m.npz", matrix.tocoo())
    graph, _ = make(tmp_path / "m.npz", self_loops="keep")
    both = matrix.toarray()
    if not once:
        both = both + both.T - np.diag(both.diagonal())
    np.testing.assert_allclose(matrix_of(graph), both, rtol=1e-6)
    assert graph.manifest.made["options"]["both_directions"] == ("once" if once else "add")


@pytest.mark.parametrize("directed", [False, True])
def test_all_times_of_an_edge_are_held_out_together(make, directed):
    options = {"time": "time", "relation": "none", "split_edges": (0.6, 0.2, 0.2)}
    graph, _ = make(random_edges(8, rows=3000, ids=40), directed=directed, **options)
    csr = graph.csr()
    pairs = {"train": set(zip(csr.sources().tolist(), csr.indices.tolist(), strict=True))}
    for name in ("valid", "test"):
        edges = graph.heldout(name)
        assert len(edges["times"]) == len(edges["sources"])
        ends = list(zip(edges["sources"].tolist(), edges["targets"].tolist(), strict=True))
        assert len(ends) > len(set(ends))  # some at several times
        pairs[name] = set(ends)
    assert not pairs["train"] & (pairs["valid"] | pairs["test"])
    assert not pairs["valid"] & pairs["test"]


@pytest.mark.parametrize(
    ("kind", "arcs"), [("triples", ["ab", "ba", "bc", "cb"]), ("tsv", ["-a", "-b", "a-", "b-"])]
)
def test_triples_without_relations(make, kind, arcs):
    graph, _ = make("a\t-\tb\nb\t-\tc\na\t-\tb\n", "e.txt", format=kind, relation="none")
    assert graph.manifest.relations is None
    assert sorted(pairs_of(graph)) == arcs
    ends = pd.DataFrame({"head": ["a"], "tail": ["b"]})
    graph, _ = make(ends, format="triples", relation="none")
    assert pairs_of(graph) == ["ab", "ba"]


TU_FILES = {"A": "1, 1\n1, 2\n2, 1\n", "graph_indicator": "1\n1\n", "edge_labels": "0\n1\n1\n"}
ZOO = "graph_id,source,target,relation\n7,a,a,x\n7,a,b,y\n"


@pytest.mark.parametrize("asked", [None, "keep", "drop"])
@pytest.mark.parametrize("relation", [None, "none"])
@pytest.mark.parametrize("kind", ["triples", "zoo", "tu"])
def test_self_loops_are_kept_where_edges_have_relations(tmp_path, make, kind, relation, asked):
    source = ZOO if kind == "zoo" else "a\tx\ta\na\ty\tb\n"
    if kind == "tu":
        source = tmp_path / "SMALL"
        source.mkdir()
        for name, text in TU_FILES.items():
            (source / f"SMALL_{name}.txt").write_text(text)
    graph, report = make(source, "e.csv", format=kind, relation=relation, self_loops=asked)
    kept = asked == "keep" or (asked is None and relation is None)
    csr = graph.csr()
    assert np.count_nonzero(csr.sources() == csr.indices) == kept
    assert (report.loops_kept, report.loops_dropped) == (int(kept), int(not kept))
    # What was decided is what identifies the run, and what the graph says of its making.
    assert graph.manifest.made["options"]["self_loops"] == ("keep" if kept else "drop")


TRIPLES = "a\tlikes\tb\nb\tlikes\ta\na\tlikes\tb\nb\tknows\tc\na\tknows\tb\n"


@pytest.mark.parametrize("file", ["e.csv", "e.parquet", "e.edgelist"])
def test_a_column_of_relations_makes_a_table_directed(make, file):
    rows = [line.split("\t") for line in TRIPLES.splitlines()]
    table = pd.DataFrame(rows, columns=["head", "relation", "tail"])
    for options, directed in (({}, True), ({"relation": "none"}, False)):
        _, report = make(table, file, **options)
        assert (report.directed, report.edges) == (directed, 4)


def test_triples_are_split_one_by_one(make):
    random = np.random.default_rng(0)
    rows = {(int(h), int(r), int(t)) for h, r, t in random.integers(0, [60, 3, 60], (4000, 3))}
    rows = {(h, r, t) for h, r, t in rows if h != t}
    text = "".join(f"{h}\t{r}\t{t}\n" for h, r, t in sorted(rows))
    options = {"split_edges": (0.7, 0.15, 0.15), "relabel": "degree"}
    graph, _ = make(text, "kg.txt", format="triples", **options)
    graph.validate()
    ids, names = graph.user_ids().to_pylist(), [int(name) for name in graph.manifest.relations]
    csr = graph.csr()
    found = [list(zip(csr.sources(), csr.relations, csr.indices, strict=True))]
    for name in ("valid", "test"):
        edges = graph.heldout(name)
        columns = (edges[column] for column in ("sources", "relations", "targets"))
        found.append(list(zip(*columns, strict=True)))
        assert 0.12 < len(found[-1]) / len(rows) < 0.18
    triples = Counter((ids[h], names[r], ids[t]) for part in found for h, r, t in part)
    assert triples == Counter(rows)  # every triple is in exactly one part


def test_bad_rows_are_counted_and_kept_aside(make):
    table = random_edges(4)
    table.loc[[5, 17], "weight"] = np.nan
    table.loc[30, "weight"] = -2
    options = {"weight": "weight", "relation": "none"}
    with pytest.raises(InputError, match=r"edges\.csv.*7"):
        make(table, "edges.csv", **options)
    graph, report = make(table, "edges.csv", on_bad_rows="skip", **options)
    assert report.bad_rows == 3
    kept = json.loads((graph.path / "bad_rows.json").read_text())
    assert [bad["row"] for bad in kept["first"]] == [7, 19, 32]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", ["int", "date", "float"])
def test_the_newest_edges_are_held_out(make, kind, directed):
    rng, rows = np.random.default_rng(0), 20_000
    times = rng.permutation(rows)
    if kind == "date":
        times = pd.Timestamp("2026-01-01") + pd.to_timedelta(times, "min")
    elif kind == "float":
        times = times / 8
    ends = rng.integers(0, 10**6, (rows, 2))
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1], "t": times})
    options = {"split_edges": (0.7, 0.1, 0.2), "split_edges_by": "time"}
    graph, _ = make(table, time="t", directed=directed, **options)
    parts = [graph.csr().times, *(graph.heldout(name)["times"] for name in ("valid", "test"))]
    counts = [len(part) / (1 if directed or i else 2) for i, part in enumerate(parts)]
    assert np.allclose(np.array(counts) / rows, (0.7, 0.1, 0.2), atol=0.002)
    for older, newer in pairwise(parts):
        assert older.max() < newer.min()
    with pytest.raises(InputError):
        make(table.assign(t=times[0]), time="t", **options)
    for more in ({}, {"time": "t", "merge_times": True}):
        with pytest.raises(UsageError):
            make(table, **options, **more)


def weighted(weight):
    return pa.table({"src": [1, 2], "dst": [2, 3], "weight": [weight, 1.0]})


def test_a_resumed_run_of_another_table_is_refused(tmp_path, monkeypatch):
    out = tmp_path / "g"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Output, "describe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            etl(weighted(5.0), out, directed=True)
    with pytest.raises(UsageError):
        etl(weighted(9.0), out, directed=True, resume=True)
    etl(weighted(5.0), out, directed=True, resume=True)
    assert Graph.open(out).csr().weights.tolist() == [5.0, 1.0]


def test_the_time_window_is_of_training_edges(tmp_path, make):
    (tmp_path / "new.csv").write_text("src,dst,day\n1,3,2026-11-21\n")
    text = "src,dst,day\n1,2,2026-11-01\n2,3,2026-11-25\n"
    options = {"time": "day", "until": "2026-11-20", "directed": True}
    graph, _ = make(text, "old.csv", test=tmp_path / "new.csv", **options)
    assert (graph.num_edges, graph.manifest.heldout) == (1, {"test": 1})
