"""Node tables: ids without edges, labels, splits and features end up at the right node."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock import Graph, info
from penstock.errors import InputError
from penstock.pipelines.cli import run

IDS = [40, 10, 30, 20, 50, 60]
EDGES = "src,dst\n10,20\n20,40\n30,10\n"


def table(**columns):
    return pd.DataFrame({"id": IDS, **columns})


def write(path, frame):
    path.parent.mkdir(exist_ok=True)
    if isinstance(frame, pa.Table):
        pq.write_table(frame, path, row_group_size=4)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.fixture
def of(tmp_path, make):
    """Make a graph of three edges and a node table: of(table, "n.csv") or of(folder)."""

    def of(nodes, file="n.parquet", **options):
        path = nodes if isinstance(nodes, Path) else write(tmp_path / file, nodes)
        graph, report = make(EDGES, "edges.csv", nodes=path, **options)
        graph.validate()
        return graph, report

    return of


def by_id(graph, values):
    return dict(zip(graph.user_ids().to_pylist(), values, strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"relabel": "random"}, {"relabel": "degree"}, {"drop_isolated": True}]
)
@pytest.mark.parametrize("file", ["n.csv", "n.parquet"])
def test_node_data_follow_their_ids(of, options, file):
    nodes = table(
        colour=["red", "blue", "red", None, "green", "blue"],
        part=["train", "valid", "test", "train", None, "train"],
        x0=np.arange(6) / 4,
        x1=np.arange(6) * 10.0,
    )
    columns = {"label": "colour", "split": "part", "feature_columns": ("x*",)}
    graph, _ = of(nodes, file, **columns, **options)
    ids = graph.user_ids().to_pylist()
    assert set(ids) == set(IDS) - ({50, 60} if options.get("drop_isolated") else set())
    truth = nodes.set_index("id").loc[ids]
    assert graph.manifest.classes == ("blue", "green", "red")
    got = [None if n < 0 else graph.manifest.classes[n] for n in graph.labels()]
    assert got == [None if pd.isna(c) else c for c in truth.colour]
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(graph.split(name), truth.part == name)
        assert graph.manifest.splits[name] == int((truth.part == name).sum())
    np.testing.assert_array_equal(graph.features(), truth[["x0", "x1"]].to_numpy(np.float32))


def test_features_without_a_table_number_nodes_from_0(tmp_path, make):
    edges, options = "src,dst\n0,1\n1,3\n", {"features": tmp_path / "x.npy"}
    np.save(tmp_path / "x.npy", np.arange(5, dtype=np.float32)[:, None])
    graph, _ = make(edges, "e.csv", **options)
    assert graph.user_ids().to_pylist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(graph.features()[:, 0], np.arange(5))
    np.save(tmp_path / "x.npy", np.zeros((3, 1), np.float32))
    with pytest.raises(InputError) as error:
        make(edges, "e.csv", **options)
    assert error.value.got.startswith("3")  # the node that has no row


LISTS = {
    "lists": [["a"], None, [], ["b", None], [None], ["a", "b"]],
    "floats": [[1.0], None, [], [2.0, np.nan], [np.nan], [1.0, 2.0]],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_null_is_not_a_label_and_an_empty_list_is(of, name):
    nodes = pa.table({"id": IDS, "tags": LISTS[name]})
    graph, _ = of(nodes, label="tags", split_nodes=(0.5, 0.25, 0.25))
    labels = by_id(graph, graph.labels())
    assert labels == {40: [0], 10: None, 30: [], 20: [1], 50: None, 60: [0, 1]}
    labelled = {user: label is not None for user, label in labels.items()}
    assert by_id(graph, graph.labelled()) == labelled
    assert sum(graph.manifest.splits.values()) == 4
    drawn = by_id(graph, graph.node_column("split").to_pylist())
    assert drawn[10] is drawn[50] is None
    about = info(graph.path).labels
    assert (about["labelled"], about["splits"]) == (4, graph.manifest.splits)


# A column and options; the kind of labels, the names of classes, and labels by row.
NONE = [0, -1, 1, 1, 0, -1]
BITS = [0, 1, 1, 1, 0, 1]
GAPS = {
    "with gaps": ([2, None, 10, 2, 0, None], {}, "class", "0 2 10", [1, -1, 2, 1, 0, -1]),
    "fractions": ([2.5, None, 1, 2, 0, 1], {}, "value", None, None),
    "-1 is a class": ([0, -1, 1, 1, 0, -1], {}, "class", "-1 0 1", [1, 0, 2, 2, 1, 0]),
    "-1 is none": (NONE, {"label_missing": -1}, "class", "0 1", NONE),
    "-1.0 is none": ([0.0, *NONE[1:]], {"label_missing": "-1"}, "class", "0 1", NONE),
    "-1.0 is none of the classes": (
        [0.0, *NONE[1:]],
        {"label_missing": "-1", "label_kind": "class"},
        "class",
        "0 1",
        NONE,
    ),
    "an empty text": (["a", "", "b", "b", "a", ""], {}, "class", "a b", NONE),
    "a text among numbers": (BITS, {"label_missing": "?"}, "class", "0 1", BITS),
    "a text": (list("x?yyx?"), {"label_missing": "?"}, "class", "x y", NONE),
}


@pytest.mark.parametrize("file", ["n.csv", "n.parquet"])
@pytest.mark.parametrize("case", GAPS)
def test_labels_are_what_the_report_says(tmp_path, capsys, file, case):
    column, options, kind, names, expected = GAPS[case]
    path = write(tmp_path / file, table(y=column, x=0.5))
    (tmp_path / "e.csv").write_text(EDGES)
    line = ["--cluster", "threads", "--nodes", str(path), "--label", "y", "--feature-columns", "x"]
    for name, value in options.items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    line += ["--split-nodes", "1", "0", "0", "--json"]
    assert run(["etl", str(tmp_path / "e.csv"), str(tmp_path / "g"), *line]) == 0
    report = json.loads(capsys.readouterr().out)
    graph = Graph.open(tmp_path / "g")
    assert report["labels"]["kind"] == graph.manifest.labels == kind
    count = int(graph.labelled().sum())
    assert report["labels"]["labelled"] == report["splits"]["train"] == count
    assert report["features"]["width"] == 1
    if names is not None:
        assert report["labels"]["classes"] == names.split()
        labels = by_id(graph, graph.labels().tolist())
        assert [labels[user] for user in IDS] == expected


def test_a_fixed_number_of_classes_per_node(of):
    pairs = [["a", "b"], ["b", "c"], None, ["c", "a"], ["a", "a"], [None, "b"]]
    nodes = pa.table({"id": IDS, "tags": pa.array(pairs, pa.list_(pa.string(), 2))})
    graph, _ = of(nodes, label="tags")
    labels = by_id(graph, graph.labels())
    assert labels == {40: [0, 1], 10: [1, 2], 30: None, 20: [2, 0], 50: [0, 0], 60: [1]}
    for kind in ("class", "value"):
        with pytest.raises(InputError, match=f"--label-kind {kind}"):
            of(nodes, label="tags", label_kind=kind)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_features_of_several_files_are_found_by_name(tmp_path, of, suffix):
    nodes, folder = table(x0=np.arange(6.0), x1=np.arange(6.0) * 10), tmp_path / "nodes"
    write(folder / f"0{suffix}", nodes[:3])
    write(folder / f"1{suffix}", nodes[3:][["x1", "id", "x0"]])
    graph, _ = of(folder, feature_columns=("x*",))
    assert graph.manifest.feature_names == ("x0", "x1")
    expected = nodes.set_index("id").loc[graph.user_ids().to_pylist()]
    np.testing.assert_array_equal(graph.features(), expected.to_numpy(np.float32))
    write(folder / f"1{suffix}", nodes[3:].rename(columns={"x1": "x7"}))
    with pytest.raises(InputError, match=r"1\..*x7"):
        of(folder, feature_columns=("x*",))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_without_any_label_goes_with_files_that_have_some(tmp_path, of, suffix):
    first, second = (tmp_path / f"nodes/{name}{suffix}" for name in "01")
    write(first, pd.DataFrame({"id": IDS[:3], "kind": [None] * 3}))
    write(second, pd.DataFrame({"id": IDS[3:], "kind": ["a", None, "b"]}))
    graph, _ = of(first.parent, label="kind")
    labels = by_id(graph, graph.labels().tolist())
    assert labels == {40: -1, 10: -1, 30: -1, 20: 0, 50: -1, 60: 1}
    write(first, pd.DataFrame({"id": IDS[:3], "kind": [1, 2, 3]}))
    with pytest.raises(InputError):
        of(first.parent, label="kind")


def test_features_that_have_no_names(tmp_path, of):
    table(a=np.arange(6.0)).to_csv(tmp_path / "n.csv", index=False, header=False)
    graph, _ = of(tmp_path / "n.csv", node_id="0", feature_columns=("1",))
    assert graph.manifest.feature_names is None
    lists = table(x=[[i, i + 0.5] for i in range(6)])
    graph, _ = of(lists, feature_columns=("x",))
    assert graph.manifest.feature_names is None
    lists["x"] = [[1.0]] * 3 + [[1.0, 2.0]] * 3
    for name, rows in (("0", lists[:3]), ("1", lists[3:])):
        write(tmp_path / f"n/{name}.parquet", rows)
    with pytest.raises(InputError):
        of(tmp_path / "n", feature_columns=("x",))


def test_bad_node_tables(tmp_path, of):
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    with pytest.raises(InputError) as error:
        of(pd.DataFrame({"id": [10, 20, 10, 30, 40]}))
    assert error.value.got.startswith("10 ")
    with pytest.raises(InputError) as error:
        of(table(), features=tmp_path / "x.npy")
    assert error.value.got == "5"


def test_a_skipped_row_does_not_shift_the_features(tmp_path, of):
    ids = ["40", "10", "not a number", "30", "20", "50", "60"]
    np.save(tmp_path / "x.npy", np.arange(7, dtype=np.float32)[:, None])
    options = {"features": tmp_path / "x.npy", "on_bad_rows": "skip", "relabel": "random"}
    graph, report = of(pd.DataFrame({"id": ids}), "n.csv", **options)
    assert report.bad_rows == 1
    found = by_id(graph, graph.features()[:, 0])
    assert found == {40: 0, 10: 1, 30: 3, 20: 4, 50: 5, 60: 6}


def test_cora(data, make):
    cora = data / "nodes" / "cora.npz"
    graph, _ = make(cora, features=cora)
    with np.load(cora, allow_pickle=True) as parts:
        nodes, width = parts["attr_shape"]
        nonzeros = np.count_nonzero(parts["attr_data"])
    features = graph.manifest.features
    assert (graph.num_nodes, features.kind, features.width) == (nodes, "sparse", width)
    assert features.nonzeros == nonzeros


MISSING = np.array(
    [[1, np.nan, 0], [2, 5, np.nan], [np.nan, 7, 0], [5, 0, 4], [0, 0, 0], [4, np.nan, 2]]
)


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "nulls", "lists", "npy", "npz"])
def test_missing_features_are_filled(tmp_path, of, kind, how):
    rows = [[None if np.isnan(x) else x for x in row] for row in MISSING.tolist()]
    nodes = table(**{f"x{i}": MISSING[:, i] for i in range(3)})
    options = {"feature_columns": ("x*",)}
    if kind in ("npy", "npz"):
        nodes, options = table(), {"features": tmp_path / f"x.{kind}"}
        save = np.save if kind == "npy" else lambda to, x: sp.save_npz(to, sp.csr_matrix(x))
        save(options["features"], MISSING)
    elif kind == "nulls":
        columns = {f"x{i}": pa.array([row[i] for row in rows]) for i in range(3)}
        nodes = pa.table({"id": IDS, **columns})
    elif kind == "lists":
        nodes = pa.table({"id": IDS, "x": pa.array(rows)})
    file = "n.csv" if kind == "csv" else "n.parquet"
    with pytest.raises(InputError):
        of(nodes, file, **options)
    graph, report = of(nodes, file, missing_features=how, **options)
    fill = np.zeros(3) if how == "zero" else np.nanmean(MISSING, axis=0)
    truth = pd.DataFrame(np.where(np.isnan(MISSING), fill, MISSING), IDS)
    got = graph.features()
    got = got.toarray() if kind == "npz" else got
    np.testing.assert_allclose(got, truth.loc[graph.user_ids().to_pylist()], rtol=1e-6)
    assert report.features_filled == 4


def test_a_node_whose_list_is_null_has_no_features(of):
    lists = pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0], None, [7.0, 8.0]])
    nodes = pa.table({"id": IDS, "x": lists})
    graph, _ = of(nodes, missing_features="mean", feature_columns=("x",))
    assert graph.features()[[0, 4]].tolist() == [[4, 5]] * 2  # ids 10, 50
