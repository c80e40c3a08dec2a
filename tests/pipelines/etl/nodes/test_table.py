"""Node tables of every kind, and what is wrong with one."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock.errors import InputError

COUNT = 5


@pytest.fixture
def made(make):
    """Return a function that makes a graph of nodes 1 .. 5 on a line with a node table."""
    ids = np.arange(1, COUNT + 1)
    edges = pd.DataFrame({"src": ids[:-1], "dst": ids[1:]})
    return lambda **options: make(edges, "e.csv", **options)[0]


def write(path, columns):
    """Write a table; ids are 1 .. 5 unless it has some."""
    table = pa.table({"id": list(range(1, COUNT + 1))} | columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        table.to_pandas().to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv"])
def test_splits_have_their_usual_names(tmp_path, made, suffix):
    for names, found in (
        (["train", "Valid", "val", "validation", "dev"], [0, 1, 1, 1, 1]),
        ([" test", "TRAINING", None, "0", "2"], [2, 0, None, 0, 2]),
    ):
        graph = made(nodes=write(tmp_path / f"n.{suffix}", {"s": names}), split="s")
        assert graph.node_column("split").to_pylist() == found


def test_feature_columns_are_in_the_order_that_is_given(tmp_path, made):
    columns = {"x2": [1.0] * COUNT, "x10": [2.0] * COUNT, "age": [3] * COUNT, "y": [4] * COUNT}
    nodes = write(tmp_path / "n.csv", columns)
    given = {"nodes": nodes, "label": "y"}
    assert made(feature_columns=("age", "x*"), **given).features()[0].tolist() == [3, 1, 2]
    assert made(feature_columns=("*",), **given).features()[0].tolist() == [1, 2, 3]


NAN, INFINITE = float("nan"), float("inf")
LISTS = [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0], [8.0, 9.0]]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"x": [1, 2, INFINITE, 4, 5.0]}, {"feature_columns": ("x",)}),
        ({"x": [1, 2, NAN, 4, 5.0]}, {"feature_columns": ("x",)}),
        ({"x": LISTS}, {"feature_columns": ("x",)}),
        ({"s": ["train", "test", "holdout", "test", "train"]}, {"split": "s"}),
        ({"y": [1.0, 2, 0.5, 2, 3]}, {"label": "y", "label_kind": "class"}),
        ({"id": ["1", "2", "b", "4", "5"]}, {}),
    ],
)
def test_a_row_that_cannot_be_used_is_named_or_skipped(tmp_path, made, suffix, columns, options):
    if suffix == "csv" and (columns.get("x") is LISTS or "label_kind" in options):
        pytest.skip("text has no lists, and any text is a class")
    path = write(tmp_path / f"n.{suffix}", columns)
    given = {"nodes": path, "unknown_nodes": "drop"} | options
    row = 3 if suffix == "parquet" else 4
    with pytest.raises(InputError, match=rf"{path.name}, row {row}"):
        made(**given)
    assert made(on_bad_rows="skip", **given).user_ids().to_pylist() == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("n.csv", "id,x\n1,1\n", {"feature_columns": ("z*",)}),
        ("n.csv", "", {}),
        ("n.csv", "key,y\n1,1\n", {"node_id": "key", "label": "z"}),
        ("n.csv", "id,label,label,x1\n0,1,2,3\n", {"label": "label"}),
        ("n.csv", "id,label,x1,x1\n0,1,2,3\n", {"feature_columns": ("x*",)}),
    ],
)
def test_a_wrong_table_is_named(tmp_path, made, name, text, options):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=name):
        made(nodes=tmp_path / name, **options)


ARRAYS = {
    **{
        str(np.dtype(kind)): np.arange(2 * COUNT).reshape(COUNT, 2).astype(kind)
        for kind in (np.float16, np.float32, np.float64, np.int8, bool)
    },
    **{kind: sp.random(COUNT, 3, 0.5, kind, random_state=0) for kind in ("csr", "csc", "coo")},
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_features_in_a_file(tmp_path, made, kind):
    array, nodes = ARRAYS[kind], write(tmp_path / "n.csv", {})
    path = tmp_path / ("x.npz" if sp.issparse(array) else "x.npy")
    sp.save_npz(path, array) if sp.issparse(array) else np.save(path, array)
    found = made(nodes=nodes, features=path).features()
    found, array = (one.toarray() if sp.issparse(one) else one for one in (found, array))
    np.testing.assert_allclose(found, array.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("x.npy", np.zeros(COUNT)),
        ("x.csv", None),
        ("x.npy", np.array([[None]] * COUNT)),
        ("x.npz", np.array([[1, 2.0], [3, NAN], *[[0, 0.0]] * 3])),
        ("x.npy", None),
    ],
)
def test_a_wrong_file_of_features_is_named(tmp_path, made, name, array):
    nodes, path = write(tmp_path / "n.csv", {}), tmp_path / name
    if array is None:
        path.touch()
    elif path.suffix == ".npz":
        sp.save_npz(path, sp.csr_matrix(array))
    else:
        np.save(path, array, allow_pickle=True)
    with pytest.raises(InputError, match=name):
        made(nodes=nodes, features=path)
