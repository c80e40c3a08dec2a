import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock.errors import InputError, UsageError
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.layout import find_layout, guess_format


@pytest.fixture
def layout(tmp_path: Path):
    """Write a file and return the layout found for it."""

    def find(name, content, **options):
        path = tmp_path / name
        if isinstance(content, pd.DataFrame):
            content.to_parquet(path)
        elif isinstance(content, pa.Table):
            pq.write_table(content, path)
        else:
            path.write_text(content)
        checked = EtlOptions(**options)
        return find_layout([str(path)], checked, guess_format([str(path)], checked))

    return find


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.parquet", "", "parquet"),
        ("a.csv", "", "csv"),
        ("a.tsv.gz", "", "tsv"),
        ("a.csv.zst", "", "csv"),
        ("a.npz", "", "npz"),
        ("a.txt", "1 2\n", "edgelist"),
        ("a.el", "a\tb\tc\n", "triples"),
        ("a.txt", "a\tb\tc\nd\te\tf\n", "triples"),
        ("a.txt", "a\tb\t0.5\n", "edgelist"),  # weights
        ("a.txt", "1\tlikes\t2\n", "edgelist"),  # triples of integers only when asked for
        ("a.txt", "a b c\n", "edgelist"),
    ],
)
def test_format_by_name(tmp_path, name, text, kind):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert guess_format([str(path)], EtlOptions()) == kind
    assert guess_format([str(path)], EtlOptions(format="zoo")) == "zoo"


def test_format_of_folders(tmp_path):
    tu = tmp_path / "PROTEINS"
    tu.mkdir()
    (tu / "PROTEINS_A.txt").write_text("1, 2\n")
    assert guess_format([str(tu)], EtlOptions()) == "tu"
    table = tmp_path / "follows"
    (table / "day=1").mkdir(parents=True)
    (table / "_SUCCESS").touch()
    (table / "day=1" / "part-0.parquet").touch()
    assert guess_format([str(table)], EtlOptions()) == "parquet"


def test_no_format(tmp_path):
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(UsageError, match=r"a\.xlsx"):
        guess_format([str(tmp_path / "a.xlsx")], EtlOptions())
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.tsv").touch()
    with pytest.raises(UsageError):
        guess_format([str(tmp_path)], EtlOptions())
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="nothing"):
        guess_format([str(tmp_path / "nothing")], EtlOptions())


def test_ids_beyond_64_bits(layout):
    text = f"{2**64},{2**70}\n"
    with pytest.raises(InputError, match=r"a\.csv"):
        layout("a.csv", text)
    assert layout("a.csv", text, id_type="string").id_type == "string"


def _one(kind):
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array([b"0" * 16], pa.binary(16)))
    if pa.types.is_dictionary(kind):
        return pa.array(["1"]).dictionary_encode()
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([b"0" * 16], kind)
    return pa.array([1]).cast(kind)


def test_ids_of_no_use(layout):
    with pytest.raises(InputError):
        layout("a.parquet", pa.table({"src": [[1]], "dst": [[2]]}))
    with pytest.raises(InputError):
        layout("a.parquet", pa.table({"src": _one(pa.binary(16)), "dst": [1]}), id_type="int64")


def test_window(layout):
    numbers = "src,dst,t\n1,2,3\n"
    found = layout("a.csv", numbers, time="t", since="10", until="20.5")
    assert (found.since, found.until) == (10, 21)  # whole, as the times
    dates = "src,dst,t\n1,2,2026-11-20\n"
    found = layout("a.csv", dates, time="t", since="2026-11-20", until="2026-11-20T02:00:00+02:00")
    assert found.since == found.until == pd.Timestamp("2026-11-20").value
    for text, given in (
        (numbers, {"since": "2026-11-20"}),
        (dates, {"until": "5"}),
        (numbers, {"until": "nan"}),
    ):
        with pytest.raises(UsageError, match=next(iter(given))):
            layout("a.csv", text, time="t", **given)


@pytest.mark.parametrize(
    ("name", "text", "options", "named"),
    [
        ("a.csv", "a,b\n1,2\n", {}, "source"),
        ("a.csv", "src,b\n1,2\n", {}, "target"),
        ("a.csv", "src,dst\n1,2\n", {"weight": "w8"}, "w8"),
        ("a.txt", "1\n2\n", {}, "target"),
        ("a.txt", "a\tb\n", {"format": "triples"}, "target"),
        ("a.csv", "src,dst\n1,2\n", {"format": "zoo"}, "graph"),
        ("a.csv", "src,dst\n1,2\n", {"target": "src"}, "same column"),
        ("a.csv", "s,s,dst\n1,2,3\n", {"source": "s"}, "several columns named s"),
        ("a.csv", "src,dst,w,w\n1,2,3,4\n", {}, "--weight"),
        ("a.csv", "src,Src,dst,w\n1,2,3,4\n", {}, "--source"),
        ("a.parquet", pd.DataFrame({"a": [1], "b": [2]}), {}, "source"),
        ("a.parquet", pd.DataFrame({"src": [1], "dst": [2], "weight": [[1.0]]}), {}, "weight"),
        ("a.csv", "src,dst\n", {}, "no rows"),
    ],
)
def test_missing_columns(layout, name, text, options, named):
    with pytest.raises(InputError) as error:
        layout(name, text, **options)
    assert name in str(error.value)
    assert named in str(error.value)


def test_the_first_file_with_rows_counts(tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").write_text("src,dst\nx,y\n")
    found = find_layout([str(tmp_path)], EtlOptions(), "csv")
    assert (found.id_type, found.source) == ("string", "src")


@pytest.mark.parametrize(
    ("name", "content", "ends"),
    [
        ("a.txt", "a\tlikes\tb\n", (0, 2)),
        ("a.tsv", "head\trelation\ttail\na\tlikes\tb\n", ("head", "tail")),
        ("a.parquet", pd.DataFrame({"head": ["a"], "tail": ["b"]}), ("head", "tail")),
    ],
)
def test_triples_may_leave_their_relations_out(layout, name, content, ends):
    found = layout(name, content, format="triples", relation="none")
    assert (found.source, found.target, found.relation) == (*ends, None)


def test_matrix(tmp_path):
    matrix = sp.random(5, 5, 0.5, "csr", random_state=0)
    sp.save_npz(tmp_path / "w.npz", matrix)
    matrix.data = np.ones_like(matrix.data)
    sp.save_npz(tmp_path / "ones.npz", matrix)
    find = lambda name: find_layout([str(tmp_path / name)], EtlOptions(), "npz")  # noqa: E731
    assert find("w.npz").weight == "data"
    assert find("ones.npz").weight is None
