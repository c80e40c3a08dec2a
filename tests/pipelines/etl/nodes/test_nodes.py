"""Node tables: ids without edges, labels, splits and features end up at the right node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock import Graph, etl, info
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError
from penstock.pipelines.cli import run

IDS = [40, 10, 30, 20, 50, 60]


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    pd.DataFrame({"src": [10, 20, 30], "dst": [20, 40, 10]}).to_csv(path, index=False)
    return path


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": IDS, **columns})


@pytest.mark.parametrize(
    "options", [{}, {"relabel": "random"}, {"relabel": "degree"}, {"drop_isolated": True}]
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_node_data_follow_their_ids(
    tmp_path: Path, edges: Path, cluster: ClusterSpec, options: dict[str, Any], suffix: str
) -> None:
    nodes = table(
        colour=["red", "blue", "red", None, "green", "blue"],
        part=["train", "valid", "test", "train", None, "train"],
        x0=np.arange(6) / 4,
        x1=np.arange(6) * 10.0,
    )
    path = tmp_path / f"nodes{suffix}"
    nodes.to_csv(path, index=False) if suffix == ".csv" else nodes.to_parquet(path)
    etl(
        edges,
        tmp_path / "g",
        cluster=cluster,
        nodes=path,
        label="colour",
        split="part",
        feature_columns=("x*",),
        **options,
    )
    graph = Graph.open(tmp_path / "g")
    graph.validate()
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


def test_features_without_a_table_number_nodes_from_0(tmp_path: Path, cluster: ClusterSpec) -> None:
    pd.DataFrame({"src": [0, 1], "dst": [1, 3]}).to_csv(tmp_path / "e.csv", index=False)
    np.save(tmp_path / "x.npy", np.arange(5, dtype=np.float32)[:, None])
    etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster, features=tmp_path / "x.npy")
    graph = Graph.open(tmp_path / "g")
    assert graph.user_ids().to_pylist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(graph.features()[:, 0], np.arange(5))
    np.save(tmp_path / "x.npy", np.zeros((3, 1), np.float32))
    with pytest.raises(InputError, match="3"):
        etl(tmp_path / "e.csv", tmp_path / "h", cluster=cluster, features=tmp_path / "x.npy")


LISTS = {
    "lists": [["a"], None, [], ["b", None], [None], ["a", "b"]],
    "floats": [[1.0], None, [], [2.0, np.nan], [np.nan], [1.0, 2.0]],
}


@pytest.mark.parametrize("name", LISTS)
def test_no_list_of_classes_is_no_label_and_an_empty_one_is(
    tmp_path: Path, edges: Path, cluster: ClusterSpec, name: str
) -> None:
    pq.write_table(pa.table({"id": IDS, "tags": LISTS[name]}), tmp_path / "nodes.parquet")
    etl(
        edges,
        tmp_path / "g",
        cluster=cluster,
        nodes=tmp_path / "nodes.parquet",
        label="tags",
        split_nodes=(0.5, 0.25, 0.25),
    )
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    labels = dict(zip(graph.user_ids().to_pylist(), graph.labels(), strict=True))
    assert labels == {40: [0], 10: None, 30: [], 20: [1], 50: None, 60: [0, 1]}
    assert dict(zip(labels, graph.labelled(), strict=True)) == {
        user: label is not None for user, label in labels.items()
    }
    assert sum(graph.manifest.splits.values()) == 4
    drawn = dict(zip(labels, graph.node_column("split").to_pylist(), strict=True))
    assert drawn[10] is drawn[50] is None
    told = info(tmp_path / "g").labels
    assert told is not None
    assert (told["labelled"], told["splits"]) == (4, graph.manifest.splits)


@pytest.mark.parametrize("label", ["class", "value", "multi"])
def test_nodes_without_a_label_are_in_no_drawn_split(
    tmp_path: Path, cluster: ClusterSpec, label: str
) -> None:
    ends = np.arange(40)
    pd.DataFrame({"src": ends, "dst": (ends + 1) % 40}).to_csv(tmp_path / "e.csv", index=False)
    text = {"class": "b", "value": "0.5", "multi": "b;c"}[label]
    rows = [f"{i},{text if i % 4 else ''}\n" for i in range(40)]
    (tmp_path / "n.csv").write_text("id,y\n" + "".join(rows))
    etl(
        tmp_path / "e.csv",
        tmp_path / "g",
        cluster=cluster,
        nodes=tmp_path / "n.csv",
        label="y",
        label_kind=label,
        split_nodes=(0.5, 0.25, 0.25),
    )
    graph = Graph.open(tmp_path / "g")
    assert graph.manifest.labels == label
    assert graph.labelled().tolist() == [i % 4 != 0 for i in range(40)]
    drawn = np.asarray(graph.node_column("split").fill_null(-1))
    assert (drawn == -1).tolist() == [i % 4 == 0 for i in range(40)]


GAPS = {
    # column, options -> kind, names of classes, labels by row
    "with gaps": ([2, None, 10, 2, 0, None], {}, "class", "0 2 10", [1, -1, 2, 1, 0, -1]),
    "fractions": ([2.5, None, 1, 2, 0, 1], {}, "value", None, None),
    "-1 is a class": ([0, -1, 1, 1, 0, -1], {}, "class", "-1 0 1", [1, 0, 2, 2, 1, 0]),
    "-1 is none": (
        [0, -1, 1, 1, 0, -1],
        {"label_missing": -1},
        "class",
        "0 1",
        [0, -1, 1, 1, 0, -1],
    ),
    "-1.0 is none": (
        [0.0, -1.0, 1, 1, 0, -1],
        {"label_missing": "-1"},
        "class",
        "0 1",
        [0, -1, 1, 1, 0, -1],
    ),
    "-1.0 is none of the classes": (
        [0.0, -1.0, 1, 1, 0, -1],
        {"label_missing": "-1", "label_kind": "class"},
        "class",
        "0 1",
        [0, -1, 1, 1, 0, -1],
    ),
    "an empty text is none": (
        ["a", "", "b", None, "a", ""],
        {},
        "class",
        "a b",
        [0, -1, 1, -1, 0, -1],
    ),
    "a text is none": (
        ["9", "?", "10", "9", "9", "?"],
        {"label_missing": "?"},
        "class",
        None,
        None,
    ),
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", GAPS)
def test_labels_are_what_the_report_says(
    tmp_path: Path, edges: Path, capsys: pytest.CaptureFixture[str], suffix: str, case: str
) -> None:
    column, options, kind, names, expected = GAPS[case]
    path, frame = tmp_path / f"n{suffix}", table(y=column, x=0.5)
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    line = ["--cluster", "threads", "--nodes", str(path), "--label", "y", "--feature-columns", "x"]
    for name, value in options.items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    line += ["--split-nodes", "1", "0", "0", "--json"]
    assert run(["etl", str(edges), str(tmp_path / "g"), *line]) == 0
    told = json.loads(capsys.readouterr().out)
    graph = Graph.open(tmp_path / "g")
    assert told["labels"]["kind"] == graph.manifest.labels == kind
    count = int(graph.labelled().sum())
    assert told["labels"]["labelled"] == told["splits"]["train"] == count
    assert told["features"]["width"] == 1
    if names is not None:
        assert told["labels"]["classes"] == names.split()
        labels = dict(zip(graph.user_ids().to_pylist(), graph.labels().tolist(), strict=True))
        assert [labels[user] for user in IDS] == expected
    if case == "a text is none":
        assert (count, len(told["labels"]["classes"])) == (4, 2)


def test_a_fixed_number_of_classes_a_node(
    tmp_path: Path, edges: Path, cluster: ClusterSpec
) -> None:
    pairs = pa.array(
        [["a", "b"], ["b", "c"], None, ["c", "a"], ["a", "a"], [None, "b"]],
        pa.list_(pa.string(), 2),
    )
    pq.write_table(pa.table({"id": IDS, "tags": pairs}), tmp_path / "n.parquet")
    options = {"cluster": cluster, "nodes": tmp_path / "n.parquet", "label": "tags"}
    etl(edges, tmp_path / "g", **options)
    graph = Graph.open(tmp_path / "g")
    labels = dict(zip(graph.user_ids().to_pylist(), graph.labels(), strict=True))
    assert labels == {40: [0, 1], 10: [1, 2], 30: None, 20: [2, 0], 50: [0, 0], 60: [1]}
    for kind in ("class", "value"):
        with pytest.raises(InputError, match=f"--label-kind {kind}"):
            etl(edges, tmp_path / "h", label_kind=kind, **options)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_features_of_several_files_are_found_by_name(
    tmp_path: Path, edges: Path, cluster: ClusterSpec, suffix: str
) -> None:
    nodes = table(x0=np.arange(6.0), x1=np.arange(6.0) * 10)
    folder = tmp_path / "nodes"
    folder.mkdir()

    def write(frame: pd.DataFrame, name: str) -> None:
        path = folder / f"{name}{suffix}"
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)

    write(nodes[:3], "0")
    write(nodes[3:][["x1", "id", "x0"]], "1")
    options = {"cluster": cluster, "nodes": folder, "feature_columns": ("x*",)}
    etl(edges, tmp_path / "g", **options)
    graph = Graph.open(tmp_path / "g")
    assert graph.manifest.feature_names == ("x0", "x1")
    expected = nodes.set_index("id").loc[graph.user_ids().to_pylist()]
    np.testing.assert_array_equal(graph.features(), expected.to_numpy(np.float32))
    write(nodes[3:].rename(columns={"x1": "x7"}), "1")
    with pytest.raises(InputError, match=r"1\..*x7"):
        etl(edges, tmp_path / "h", **options)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_without_any_label_goes_with_files_that_have_some(
    tmp_path: Path, edges: Path, cluster: ClusterSpec, suffix: str
) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()

    def write(kinds: list[Any], name: str) -> None:
        start, path = 3 * int(name), folder / f"{name}{suffix}"
        frame = pd.DataFrame({"id": IDS[start : start + 3], "kind": kinds})
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)

    write([None] * 3, "0")
    write(["a", None, "b"], "1")
    options = {"cluster": cluster, "nodes": folder, "label": "kind"}
    etl(edges, tmp_path / "g", **options)
    graph = Graph.open(tmp_path / "g")
    labels = dict(zip(graph.user_ids().to_pylist(), graph.labels().tolist(), strict=True))
    assert labels == {40: -1, 10: -1, 30: -1, 20: 0, 50: -1, 60: 1}
    write([1, 2, 3], "0")
    with pytest.raises(InputError):
        etl(edges, tmp_path / "h", **options)


def test_features_that_have_no_names(tmp_path: Path, edges: Path, cluster: ClusterSpec) -> None:
    path = tmp_path / "n.csv"
    table(a=np.arange(6.0)).to_csv(path, index=False, header=False)
    etl(edges, tmp_path / "text", cluster=cluster, nodes=path, node_id="0", feature_columns=("1",))
    assert Graph.open(tmp_path / "text").manifest.feature_names is None
    lists = table(x=[[i, i + 0.5] for i in range(6)])
    folder = tmp_path / "n"
    folder.mkdir()
    lists.to_parquet(folder / "0.parquet")
    options = {"cluster": cluster, "nodes": folder, "feature_columns": ("x",)}
    etl(edges, tmp_path / "lists", **options)
    assert Graph.open(tmp_path / "lists").manifest.feature_names is None
    lists["x"] = [[1.0]] * 3 + [[1.0, 2.0]] * 3
    lists[:3].to_parquet(folder / "0.parquet")
    lists[3:].to_parquet(folder / "1.parquet")
    with pytest.raises(InputError):
        etl(edges, tmp_path / "h", **options)


def test_bad_node_tables(tmp_path: Path, edges: Path, cluster: ClusterSpec) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    for ids, named, options in (
        ([10, 20, 10, 30, 40], "10", {}),
        (IDS, "6.*5", {"features": tmp_path / "x.npy"}),
    ):
        pd.DataFrame({"id": ids}).to_csv(tmp_path / "nodes.csv", index=False)
        with pytest.raises(InputError, match=named):
            etl(edges, tmp_path / "g", cluster=cluster, nodes=tmp_path / "nodes.csv", **options)


def test_a_skipped_row_does_not_shift_the_features(
    tmp_path: Path, edges: Path, cluster: ClusterSpec
) -> None:
    nodes = table()
    nodes["id"] = nodes["id"].astype(str)
    nodes.loc[6] = ["not a number"]
    nodes = nodes.reindex([0, 1, 6, 2, 3, 4, 5])
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    np.save(tmp_path / "x.npy", np.arange(7, dtype=np.float32)[:, None])
    report = etl(
        edges,
        tmp_path / "g",
        cluster=cluster,
        nodes=tmp_path / "nodes.csv",
        features=tmp_path / "x.npy",
        on_bad_rows="skip",
    )
    graph = Graph.open(tmp_path / "g")
    assert report.bad_rows == 1
    got = dict(zip(graph.user_ids().to_pylist(), graph.features()[:, 0], strict=True))
    assert got == {40: 0, 10: 1, 30: 3, 20: 4, 50: 5, 60: 6}


def test_cora(tmp_path: Path, data: Path, cluster: ClusterSpec) -> None:
    cora = data / "nodes" / "cora.npz"
    etl(cora, tmp_path / "g", cluster=cluster, features=cora)
    graph = Graph.open(tmp_path / "g")
    with np.load(cora, allow_pickle=True) as parts:
        nodes, width = parts["attr_shape"]
        nonzeros = np.count_nonzero(parts["attr_data"])
    assert graph.num_nodes == nodes
    features = graph.manifest.features
    assert features is not None
    assert (features.kind, features.width, features.nonzeros) == ("sparse", width, nonzeros)
    assert features.sparsity(nodes) > 0.98


MISSING = np.array(
    [[1, np.nan, 0], [2, 5, np.nan], [np.nan, 7, 0], [5, 0, 4], [0, 0, 0], [4, np.nan, 2]]
)


@pytest.mark.parametrize("how", ["zero", "mean"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "nulls", "lists", "npy", "npz"])
def test_missing_features_are_filled(
    tmp_path: Path, edges: Path, cluster: ClusterSpec, kind: str, how: str
) -> None:
    options: dict[str, Any] = {"feature_columns": ("x*",)}
    columns = {f"x{i}": MISSING[:, i] for i in range(3)}
    path = tmp_path / ("nodes.csv" if kind in ("csv", "npy", "npz") else "nodes.parquet")
    if kind in ("npy", "npz"):
        table().to_csv(path, index=False)
        options = {"features": tmp_path / f"x.{kind}"}
        save = np.save if kind == "npy" else lambda to, x: sp.save_npz(to, sp.csr_matrix(x))
        save(options["features"], MISSING)
    elif kind == "csv":
        table(**columns).to_csv(path, index=False)
    elif kind == "parquet":
        table(**columns).to_parquet(path)
    else:
        rows = [[None if np.isnan(x) else x for x in row] for row in MISSING.tolist()]
        made = {f"x{i}": pa.array([row[i] for row in rows]) for i in range(3)}
        if kind == "lists":
            made = {"x": pa.array(rows)}
        pq.write_table(pa.table({"id": IDS, **made}), path, row_group_size=4)
    options |= {"nodes": path, "cluster": cluster}
    with pytest.raises(InputError):
        etl(edges, tmp_path / "g", **options)
    report = etl(edges, tmp_path / "g", missing_features=how, **options)
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    fill = np.zeros(3) if how == "zero" else np.nanmean(MISSING, axis=0)
    truth = pd.DataFrame(np.where(np.isnan(MISSING), fill, MISSING), IDS)
    got = graph.features()
    got = got.toarray() if kind == "npz" else got
    np.testing.assert_allclose(got, truth.loc[graph.user_ids().to_pylist()], rtol=1e-6)
    assert report.features_filled == 4


def test_a_node_whose_list_is_null_has_no_features(
    tmp_path: Path, edges: Path, cluster: ClusterSpec
) -> None:
    lists = pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0], None, [7.0, 8.0]])
    pq.write_table(pa.table({"id": IDS, "x": lists}), tmp_path / "n.parquet")
    options: dict[str, Any] = {"nodes": tmp_path / "n.parquet", "feature_columns": ("x",)}
    etl(edges, tmp_path / "g", cluster=cluster, missing_features="mean", **options)
    assert Graph.open(tmp_path / "g").features()[[0, 4]].tolist() == [[4, 5]] * 2  # ids 10, 50
