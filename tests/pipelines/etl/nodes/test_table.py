import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.pipelines.etl.nodes.table import open_features, read_nodes
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables import sample


def read(path, id_type="int64", **options):
    """Read a node table; return its batches joined, column by column."""
    batches = list(read_nodes(path, EtlOptions(nodes=path, **options), id_type))
    first = batches[0]
    columns = {"id": [x for b in batches for x in b.id.to_pylist()]}
    if first.label is not None:
        columns["label"] = [x for b in batches for x in b.label.to_pylist()]
    for name in ("split", "features", "rows"):
        if getattr(first, name) is not None:
            columns[name] = np.concatenate([getattr(b, name) for b in batches])
    columns["bad"] = [row.row for b in batches for row in b.bad]
    assert len(columns["bad"]) == sum(b.bad_count for b in batches)
    return columns


def write(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=3)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


FORMATS = pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])


@FORMATS
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1), st.sampled_from(["red", "blue", None]),
            st.sampled_from(["train", "valid", "test"]), st.floats(width=32, allow_nan=False,
                                                                   allow_infinity=False),
        ), min_size=1, max_size=20,
    )
)  # fmt: skip
def test_what_pandas_writes_is_read(tmp_path, suffix, rows):
    frame = pd.DataFrame(rows, columns=["id", "kind", "fold", "x0"])
    frame["x1"] = frame["x0"] / 2
    path = write(tmp_path / f"n.{suffix}", frame)
    found = read(path, label="kind", split="fold", feature_columns=("x*",), label_kind="class")
    assert found["id"] == frame["id"].tolist()
    assert found["label"] == [None if pd.isna(k) else k for k in frame["kind"]]
    names = ["train", "valid", "test"]
    assert [names[i] for i in found["split"]] == frame["fold"].tolist()
    assert found["features"].dtype == np.float32
    np.testing.assert_array_equal(found["features"], frame[["x0", "x1"]].to_numpy(np.float32))
    assert found["rows"].tolist() == list(range(len(frame)))
    assert found["bad"] == []


@FORMATS
@pytest.mark.parametrize(
    ("labels", "kind", "expected"),
    [
        ([3, 1, 2], "auto", [3, 1, 2]),
        (["a", "b", "a"], "auto", ["a", "b", "a"]),
        ([0.5, 1.5, 2.0], "auto", [0.5, 1.5, 2.0]),
        ([1, 2, 3], "value", [1.0, 2.0, 3.0]),
        (["a b", None, "c"], "multi", [["a", "b"], None, ["c"]]),
        ([None, 0.25, 1.0], "auto", [None, 0.25, 1.0]),
    ],
)
def test_labels(tmp_path, suffix, labels, kind, expected):
    path = write(tmp_path / f"n.{suffix}", pd.DataFrame({"id": [1, 2, 3], "y": labels}))
    assert read(path, label="y", label_kind=kind)["label"] == expected


def test_missing_integers_are_no_label(tmp_path):
    frame = pd.DataFrame({"id": [1, 2], "y": pd.array([7, None], dtype="Int64")})
    for suffix in ("parquet", "csv"):
        path = write(tmp_path / f"n.{suffix}", frame)
        assert read(path, label="y")["label"] == [7, None]
    frame["y"] = frame["y"].astype("float64")
    path = write(tmp_path / "n.parquet", frame)
    assert read(path, label="y", label_kind="class")["label"] == [7, None]


def test_lists_of_classes(tmp_path):
    table = pa.table({"id": [1, 2, 3], "y": [["a", "b"], [], None]})
    pq.write_table(table, tmp_path / "n.parquet")
    found = read(tmp_path / "n.parquet", label="y", label_kind="multi")
    assert found["label"] == [["a", "b"], [], None]


def test_bad_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "_ROWS", 2)
    path = tmp_path / "n.csv"
    path.write_text("id,y\n1,5\n2,x\n3,\n4,7\n")
    found = read(path, label="y", on_bad_rows="skip")
    assert (found["bad"], found["label"]) == ([3], [5, None, 7])
    with pytest.raises(InputError, match=r"n\.csv, row 3.*'x'"):
        read(path, label="y")
    path.write_text("id,y\n1,5\n2,6;x\n")
    with pytest.raises(InputError, match="row 3.*'6;x'"):
        read(path, label="y", label_kind="multi")
    for values, row, kind in (([0.5, np.inf], 2, "auto"), ([0.5, 1.0], 1, "class")):
        write(tmp_path / "n.parquet", pd.DataFrame({"id": [1, 2], "y": values}))
        with pytest.raises(InputError, match=f"row {row}"):
            read(tmp_path / "n.parquet", label="y", label_kind=kind)


@FORMATS
def test_splits(tmp_path, suffix):
    names = ["train", "Valid", "val", "validation", "dev", " test", "TRAINING", None, "0", "2"]
    frame = pd.DataFrame({"id": range(len(names)), "s": names})
    path = write(tmp_path / f"n.{suffix}", frame)
    assert read(path, split="s")["split"].tolist() == [0, 1, 1, 1, 1, 2, 0, -1, 0, 2]
    frame.loc[1, "s"] = "holdout"
    write(path, frame)
    found = read(path, split="s", on_bad_rows="skip")
    assert found["bad"] == [2 if suffix == "parquet" else 3]
    assert found["rows"].tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_feature_columns(tmp_path):
    frame = pd.DataFrame({"x2": [1.0], "id": [5], "x10": [2.0], "age": [3], "y": [4]})
    path = write(tmp_path / "n.csv", frame)
    options = {"label": "y", "feature_columns": ("age", "x*")}
    assert read(path, **options)["features"].tolist() == [[3, 1, 2]]
    assert read(path, feature_columns=("*",), label="y")["features"].tolist() == [[1, 2, 3]]
    with pytest.raises(InputError, match=r"z\*"):
        read(path, feature_columns=("z*",))


def test_features_in_one_column_of_lists(tmp_path):
    path = tmp_path / "n.parquet"
    lists = [[1.0, 2.0], [3.0], None, [4.0, float("nan")], [5.0, 6.0]]
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32())):
        pq.write_table(pa.table({"id": range(5), "v": pa.array(lists, kind)}), path)
        found = read(path, feature_columns=("v",), on_bad_rows="skip")
        assert found["features"].tolist() == [[1, 2], [5, 6]]
        assert found["bad"] == [2, 3, 4]
    fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"id": [1, 2], "v": fixed}), path)
    assert read(path, feature_columns=("v",))["features"].tolist() == [[1, 2], [3, 4]]


@FORMATS
@pytest.mark.parametrize("value", [np.inf, 1e39, None, float("nan")])
def test_bad_features(tmp_path, suffix, value):
    table = pa.table({"id": [1, 2, 3], "x": pa.array([1.0, value, 2.0])})
    path = tmp_path / f"n.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        write(path, table.to_pandas())
    row = 2 if suffix == "parquet" else 3
    with pytest.raises(InputError, match=f"row {row}"):
        read(path, feature_columns=("x",))
    found = read(path, feature_columns=("x",), on_bad_rows="skip")
    assert found["bad"] == [row]
    assert found["features"].tolist() == [[1], [2]]


def test_ids_follow_the_edges(tmp_path):
    frame = pd.DataFrame({"node": ["1", "2"]})
    for suffix in ("csv", "parquet"):
        path = write(tmp_path / f"n.{suffix}", frame)
        assert read(path, "int64")["id"] == [1, 2]
        assert read(path, "string", node_id="node")["id"] == ["1", "2"]
        assert read(path, "uint64")["id"] == [1 - 2**63, 2 - 2**63]
    write(path, frame.astype(int))
    assert read(path, "string")["id"] == ["1", "2"]
    write(path, frame.replace("2", "b"))
    with pytest.raises(InputError, match=r"n\.parquet, row 2.*'b'"):
        read(path, "int64")
    assert read(path, "binary")["id"] == [b"1", b"b"]
    with pytest.raises(InputError):
        read(tmp_path / "n.csv", "binary")
    pq.write_table(pa.table({"id": pa.array([b"0" * 16], pa.binary(16))}), path)
    with pytest.raises(InputError):
        read(path, "int64")


def test_wrong_tables(tmp_path):
    path = write(tmp_path / "n.csv", pd.DataFrame({"key": ["a"], "y": [1]}))
    (tmp_path / "n.txt").write_text("1\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "short.csv").write_text("id,y\n1,2\n3\n")
    write(tmp_path / "n.parquet", pd.DataFrame({"id": [1], "x": ["a"], "v": [[1.0]]}))
    for name, options, named in (
        ("n.csv", {"label": "y"}, "--node-id"),
        ("n.csv", {"node_id": "key", "label": "z"}, "'z'"),
        ("n.txt", {}, "n.txt"),
        ("m.csv", {}, "m.csv"),
        ("empty.csv", {}, "empty.csv"),
        ("short.csv", {}, "row 3"),
        ("n.parquet", {"feature_columns": ("x", "v")}, "v"),
    ):
        with pytest.raises(InputError, match=named):
            read(path.with_name(name), **options)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, bool])
def test_dense_features(tmp_path, dtype):
    values = np.arange(12).reshape(4, 3).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    features = open_features(tmp_path / "x.npy")
    assert isinstance(features, np.memmap)
    np.testing.assert_array_equal(features, values)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_sparse_features(tmp_path, kind):
    matrix = sp.random(9, 5, 0.3, kind, random_state=0)
    sp.save_npz(tmp_path / "x.npz", matrix)
    features = open_features(tmp_path / "x.npz")
    assert features.format == "csr"
    np.testing.assert_array_equal(features.toarray(), matrix.toarray())


def test_wrong_features(tmp_path):
    path = tmp_path / "x.npy"
    for wrong in (np.zeros(3), np.zeros((2, 2), complex), np.array([["a"]]), np.array([[None]])):
        np.save(path, wrong, allow_pickle=True)
        with pytest.raises(InputError, match=r"x\.npy"):
            open_features(path)
    path.write_bytes(b"")
    (tmp_path / "x.csv").touch()
    for name in ("x.npy", "y.npy", "x.csv"):
        with pytest.raises(InputError, match=name):
            open_features(tmp_path / name)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_features_that_are_not_finite(tmp_path, monkeypatch, value):
    from penstock.pipelines.etl.nodes import features

    monkeypatch.setattr(features, "_CHUNK", 64)
    values = np.ones((10, 3))
    values[7, 1] = value
    np.save(tmp_path / "x.npy", values)
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(values))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InputError, match=f"{name}, row 8"):
            open_features(tmp_path / name)
        if np.isnan(value):
            assert open_features(tmp_path / name, may_miss=True).shape == (10, 3)
        else:
            with pytest.raises(InputError):
                open_features(tmp_path / name, may_miss=True)
        assert open_features(tmp_path / name, checked=False).shape == (10, 3)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("id,label,x1,x1", {"feature_columns": ("x*",)}),
        ("id,label,label,x1", {"label": "label"}),
        ("key,key,label,x1", {"node_id": "key"}),
    ],
)
def test_a_name_of_several_columns_is_refused(tmp_path, suffix, header, options):
    names = header.split(",")
    path = tmp_path / f"n.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table([pa.array([n, n + 1]) for n in range(4)], names=names), path)
    else:
        path.write_text("".join(",".join(row) + "\n" for row in (names, "0123", "1234")))
    with pytest.raises(InputError, match=path.name):
        read(str(path), **options)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_number_tells_columns_of_one_name_apart(tmp_path, suffix):
    path = tmp_path / f"n.{suffix}"
    rows = (["id", "label", "label", "x1", "x1"], "01234", "12345")
    path.write_text("".join(("," if suffix == "csv" else "\t").join(row) + "\n" for row in rows))
    found = read(str(path), label="2", label_kind="class")
    assert found["label"] == [2, 3]
