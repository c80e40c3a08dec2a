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
from penstock.pipelines.etl.reading import sample


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
    columns["bad"] = [(row.row, row.reason) for b in batches for row in b.bad]
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


def test_several_classes_in_a_text(tmp_path):
    frame = pd.DataFrame({"id": [1, 2, 3], "y": ["10;2", "3", "2| 1"]})
    numbers = read(write(tmp_path / "n.csv", frame), label="y", label_kind="multi")
    assert numbers["label"] == [[10, 2], [3], [2, 1]]
    texts = read(write(tmp_path / "n.parquet", frame), label="y", label_kind="multi")
    assert texts["label"] == [["10", "2"], ["3"], ["2", "1"]]


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
    assert found["bad"] == [(3, "label 'x' is not an integer, as the first rows have")]
    assert found["label"] == [5, None, 7]
    with pytest.raises(InputError, match=r"n\.csv, row 3: label 'x' is not an integer"):
        read(path, label="y")
    path.write_text("id,y\n1,5\n2,6;x\n")
    with pytest.raises(InputError, match=r"row 3: label '6;x' holds more than integers"):
        read(path, label="y", label_kind="multi")
    write(tmp_path / "n.parquet", pd.DataFrame({"id": [1, 2], "y": [0.5, np.inf]}))
    with pytest.raises(InputError, match=r"row 2: label is not finite"):
        read(tmp_path / "n.parquet", label="y")
    write(tmp_path / "n.parquet", pd.DataFrame({"id": [1, 2], "y": [0.5, 1.0]}))
    with pytest.raises(InputError, match=r"row 1: label 0.5 is not an integer"):
        read(tmp_path / "n.parquet", label="y", label_kind="class")


@FORMATS
def test_splits(tmp_path, suffix):
    names = ["train", "Valid", "val", "validation", "dev", " test", "TRAINING", None, "0", "2"]
    frame = pd.DataFrame({"id": range(len(names)), "s": names})
    path = write(tmp_path / f"n.{suffix}", frame)
    assert read(path, split="s")["split"].tolist() == [0, 1, 1, 1, 1, 2, 0, -1, 0, 2]
    frame.loc[1, "s"] = "holdout"
    write(path, frame)
    found = read(path, split="s", on_bad_rows="skip")
    row = 2 if suffix == "parquet" else 3
    assert found["bad"] == [(row, "split 'holdout' is none of train, valid and test")]
    assert found["rows"].tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_splits_as_numbers(tmp_path):
    path = write(tmp_path / "n.parquet", pd.DataFrame({"id": [1, 2, 3], "s": [2, 0, 1]}))
    assert read(path, split="s")["split"].tolist() == [2, 0, 1]


def test_feature_columns(tmp_path):
    frame = pd.DataFrame({"x2": [1.0], "id": [5], "x10": [2.0], "age": [3], "y": [4]})
    path = write(tmp_path / "n.csv", frame)
    options = {"label": "y", "feature_columns": ("age", "x*")}
    assert read(path, **options)["features"].tolist() == [[3, 1, 2]]
    assert read(path, feature_columns=("*",), label="y")["features"].tolist() == [[1, 2, 3]]
    with pytest.raises(InputError, match=r"--feature-columns z\*.*columns x2, id"):
        read(path, feature_columns=("z*",))


def test_features_in_one_column_of_lists(tmp_path):
    path = tmp_path / "n.parquet"
    lists = [[1.0, 2.0], [3.0], None, [4.0, float("nan")], [5.0, 6.0]]
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32())):
        pq.write_table(pa.table({"id": range(5), "v": pa.array(lists, kind)}), path)
        found = read(path, feature_columns=("v",), on_bad_rows="skip")
        assert found["features"].tolist() == [[1, 2], [5, 6]]
        assert found["bad"] == [
            (2, "v has 1 numbers instead of 2"),
            (3, "v has 0 numbers instead of 2"),
            (4, "a feature of v is missing or NaN"),
        ]
    fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"id": [1, 2], "v": fixed}), path)
    assert read(path, feature_columns=("v",))["features"].tolist() == [[1, 2], [3, 4]]


@FORMATS
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.inf, "feature x is not finite in 32 bits"),
        (1e39, "feature x is not finite in 32 bits"),
        (None, "feature x is missing"),
    ],
)
def test_bad_features(tmp_path, suffix, value, reason):
    frame = pa.table({"id": [1, 2, 3], "x": pa.array([1.0, value, 2.0])}).to_pandas()
    path = tmp_path / f"n.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"id": [1, 2, 3], "x": pa.array([1.0, value, 2.0])}), path)
    else:
        write(path, frame)
    row = 2 if suffix == "parquet" else 3
    with pytest.raises(InputError, match=f"row {row}: {reason}"):
        read(path, feature_columns=("x",))
    found = read(path, feature_columns=("x",), on_bad_rows="skip")
    assert found["bad"] == [(row, reason)]
    assert found["features"].tolist() == [[1], [2]]


def test_nan_features(tmp_path):
    table = pa.table({"id": [1, 2], "x": pa.array([1.0, float("nan")])})
    pq.write_table(table, tmp_path / "n.parquet")
    with pytest.raises(InputError, match=r"n\.parquet, row 2: feature x is NaN"):
        read(tmp_path / "n.parquet", feature_columns=("x",))


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
    with pytest.raises(InputError, match=r"n\.parquet, row 2: node id 'b' is not an integer"):
        read(path, "int64")
    assert read(path, "binary")["id"] == [b"1", b"b"]
    with pytest.raises(InputError, match="are text, those of the edges are bytes"):
        read(tmp_path / "n.csv", "binary")
    pq.write_table(pa.table({"id": pa.array([b"0" * 16], pa.binary(16))}), path)
    with pytest.raises(InputError, match=r"node ids.*int64, got fixed_size_binary"):
        read(path, "int64")


def test_a_table_of_nothing_but_ids(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("1\n2\n3\n")
    assert read(path)["id"] == [1, 2, 3]
    path.write_text("1\n\n")
    assert read(path)["id"] == [1]


def test_a_folder_of_tables(tmp_path):
    for i in range(3):
        write(tmp_path / f"{i}.parquet", pd.DataFrame({"id": [2 * i, 2 * i + 1]}))
    found = read(tmp_path)
    assert found["id"] == [0, 1, 2, 3, 4, 5]
    assert found["rows"].tolist() == [0, 1, 2, 3, 4, 5]


def test_wrong_tables(tmp_path):
    path = write(tmp_path / "n.csv", pd.DataFrame({"key": ["a"], "y": [1]}))
    with pytest.raises(
        InputError, match=r"n\.csv has no column for the node's id.*key, y.*--node-id"
    ):
        read(path, label="y")
    with pytest.raises(InputError, match=r"no column 'z'.*--label"):
        read(path, node_id="key", label="z")
    (tmp_path / "n.txt").write_text("1\n")
    with pytest.raises(
        InputError, match=r"n\.txt cannot be a node table.*\.parquet, \.csv or \.tsv"
    ):
        read(tmp_path / "n.txt")
    with pytest.raises(InputError, match="there is no"):
        read(tmp_path / "m.csv")
    (tmp_path / "m.csv").touch()
    with pytest.raises(InputError, match=r"m\.csv is empty"):
        read(tmp_path / "m.csv")
    (tmp_path / "m.csv").write_text("id,y\n1,2\n3\n")
    with pytest.raises(InputError, match=r"m\.csv, row 3: 1 columns instead of 2"):
        read(tmp_path / "m.csv")
    write(tmp_path / "n.parquet", pd.DataFrame({"id": [1], "x": ["a"], "v": [[1.0]], "w": [True]}))
    with pytest.raises(InputError, match=r"feature x 'a' is not a number"):
        read(tmp_path / "n.parquet", feature_columns=("x",))
    with pytest.raises(InputError, match=r"lists in v, one of several"):
        read(tmp_path / "n.parquet", feature_columns=("x", "v"))


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


def test_features_of_cora(data):
    features = open_features(data / "nodes" / "cora.npz")
    assert (features.shape, features.nnz) == ((2708, 1433), 49216)


def test_wrong_features(tmp_path):
    path = tmp_path / "x.npy"
    for wrong in (np.zeros(3), np.zeros((2, 2), complex), np.array([["a"]])):
        np.save(path, wrong)
        with pytest.raises(InputError, match=r"x\.npy has no features.*two-dimensional"):
            open_features(path)
    np.save(path, np.array([[None]]), allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy cannot be read as \.npy"):
        open_features(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.npy cannot be read as \.npy"):
        open_features(path)
    with pytest.raises(InputError, match=r"there is no .*y\.npy.*--features"):
        open_features(tmp_path / "y.npy")
    (tmp_path / "x.csv").touch()
    with pytest.raises(InputError, match=r"\.npy \(dense\) or \.npz"):
        open_features(tmp_path / "x.csv")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_features_that_are_not_finite(tmp_path, monkeypatch, value):
    from penstock.pipelines.etl.nodes import features

    monkeypatch.setattr(features, "_CHUNK", 64)
    values = np.ones((10, 3))
    values[7, 1] = value
    np.save(tmp_path / "x.npy", values)
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(values))
    for name in ("x.npy", "x.npz"):
        said = "NaN.*--missing-features" if np.isnan(value) else "not finite in 32 bits"
        with pytest.raises(InputError, match=rf"x\.np[yz], row 8: a feature is {said}"):
            open_features(tmp_path / name)
        if np.isnan(value):
            assert open_features(tmp_path / name, may_miss=True).shape == (10, 3)
        else:
            with pytest.raises(InputError, match="not finite"):
                open_features(tmp_path / name, may_miss=True)
        assert open_features(tmp_path / name, checked=False).shape == (10, 3)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("id,label,x1,x1", {"feature_columns": ("x1",)}),
        ("id,label,x1,x1", {"feature_columns": ("x*",)}),
        ("id,label,label,x1", {"label": "label"}),
        ("id,fold,fold,x1", {"split": "fold"}),
        ("key,key,label,x1", {"node_id": "key"}),
        ("id,ID,label,x1", {}),  # names of ids are known whatever their case
    ],
)
def test_a_name_of_several_columns_is_refused(tmp_path, suffix, header, options):
    names = header.split(",")
    path = tmp_path / f"n.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table([pa.array([n, n + 1]) for n in range(4)], names=names), path)
    else:
        mark = "," if suffix == "csv" else "\t"
        path.write_text("".join(mark.join(row) + "\n" for row in (names, "0123", "1234")))
    with pytest.raises(InputError, match=r"n\.\w+ has (several|2) columns .*[Rr]ename"):
        read(str(path), **options)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_number_tells_columns_of_one_name_apart(tmp_path, suffix):
    path = tmp_path / f"n.{suffix}"
    rows = (["id", "label", "label", "x1", "x1"], "01234", "12345")
    path.write_text("".join(("," if suffix == "csv" else "\t").join(row) + "\n" for row in rows))
    found = read(str(path), label="2", label_kind="class")
    assert found["label"] == [2, 3]
