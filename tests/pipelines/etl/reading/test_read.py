"""Tables are read in pieces of every size, and what cannot be read is named."""

import gzip
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import InputError, UsageError
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.layout import find_layout, guess_format
from penstock.pipelines.etl.reading.pieces import find_pieces
from penstock.pipelines.etl.reading.read import read_piece


def pieces_of(path, target_bytes=64 << 20, **options):
    """Return the layout of tables, and the pieces into which they are cut."""
    checked, paths = EtlOptions(**options), [str(path)]
    kind = guess_format(paths, checked)
    layout = find_layout(paths, checked, kind)
    return layout, find_pieces(paths, kind, layout, checked, target_bytes)


def batches(path, target_bytes=64 << 20, **options):
    layout, pieces = pieces_of(path, target_bytes, **options)
    return [batch for one in pieces for batch in read_piece(one, layout, EtlOptions(**options))]


def table(path, target_bytes=64 << 20, **options):
    read = batches(path, target_bytes, **options)
    assert all(batch.bad_count == 0 for batch in read)
    return pa.concat_tables([batch.table for batch in read])


def skipped(path, **options):
    """Read with bad rows left out; return (rows kept, numbers of the others)."""
    read = batches(path, on_bad_rows="skip", **options)
    bad = [row.row for batch in read for row in batch.bad]
    assert {row.path for batch in read for row in batch.bad} <= {str(path)}
    return pa.concat_tables([batch.table for batch in read]), bad


def refused(path, *named, error=InputError, **options):
    """Assert that reading ends with an error that has all of ``named``."""
    with pytest.raises(error) as caught:
        batches(path, **options)
    for words in named or (path.name,):
        assert words in str(caught.value)


INTEGERS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def edges(draw):
    rows = draw(st.integers(1, 40))
    made = {name: draw(st.lists(INTEGERS, min_size=rows, max_size=rows)) for name in ("src", "dst")}
    if draw(st.booleans()):
        made["weight"] = draw(st.lists(st.floats(0, 1e30), min_size=rows, max_size=rows))
    if draw(st.booleans()):
        made["when"] = draw(st.lists(INTEGERS, min_size=rows, max_size=rows))
    return pd.DataFrame(made)


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    edges(),
    st.integers(1, 400),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["", ".gz", ".zst"]),
)
def test_text_in_pieces_of_any_size(tmp_path, frame, target_bytes, delimiter, end, header, packed):
    path = tmp_path / f"a.csv{packed}"
    frame.to_csv(path, index=False, sep=delimiter, lineterminator=end, header=header)
    options = {"delimiter": delimiter, "header": "yes" if header else "no"}
    for name in ("weight", "when"):
        if name in frame:
            number = str(list(frame).index(name))
            options["time" if name == "when" else name] = name if header else number
    read = table(path, target_bytes, **options)
    names = {"source": "src", "target": "dst", "weight": "weight", "time": "when"}
    assert read.column_names == [c for c, name in names.items() if name in frame]
    for column in read.column_names:
        expected = frame[names[column]].astype("float32" if column == "weight" else "int64")
        np.testing.assert_array_equal(read[column], expected)


def test_what_cannot_be_cut_is_one_piece(tmp_path):
    (tmp_path / "quoted.csv").write_text('"1","2"\n' * 1000)
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 1000))
    (tmp_path / "names.csv").write_text('"src","dst"\n' + "1,2\n" * 1000)
    (tmp_path / "quotes.txt").write_text('"1" "2"\n' * 1000)  # edge lists do not quote
    for name, count in {
        "quoted.csv": 1,
        "packed.csv.gz": 1,
        "names.csv": 2,
        "quotes.txt": 3,
    }.items():
        assert len(pieces_of(tmp_path / name, 3000, id_type="string")[1]) == count


def test_an_empty_file_of_a_folder_has_no_rows(tmp_path):
    for name, text in {"a.csv": "", "b.csv": "1,2\n"}.items():
        (tmp_path / name).write_text(text)
    assert table(tmp_path)["source"].to_pylist() == [1]


def test_types_of_files_must_agree(tmp_path):
    first = pd.DataFrame({"src": [1], "dst": [2]})
    first.to_parquet(tmp_path / "a.parquet")
    other = pd.DataFrame({"x": ["?"], "dst": [2], "src": [1]})
    other.astype({"src": "int32", "dst": "uint8"}).to_parquet(tmp_path / "b.parquet")
    assert len(pieces_of(tmp_path)[1]) == 2
    for second in ({"src": ["a"], "dst": ["b"]}, {"src": [1], "to": [2]}):
        pd.DataFrame(second).to_parquet(tmp_path / "b.parquet")
        refused(tmp_path, "b.parquet")
    first[:0].to_parquet(tmp_path / "a.parquet")
    first.to_parquet(tmp_path / "b.parquet")
    assert len(pieces_of(tmp_path)[1]) == 1


FRAMES = {
    "weight": pd.DataFrame({"src": [1], "dst": [2], "weight": [[1.0]]}),
    "lists": pd.DataFrame({"src": [[1]], "dst": [[2]]}),
    "bytes": pd.DataFrame({"src": [b"0" * 16], "dst": [b"1" * 16]}),
    "empty": pd.DataFrame({"src": [1], "dst": [2]})[:0],
}


@pytest.mark.parametrize(
    ("files", "options", "named"),
    [
        ({"a.csv": "a,b\n1,2\n"}, {}, ("a.csv", "source")),
        ({"a.txt": "a\tb\n"}, {"format": "triples"}, ("a.txt", "target")),
        ({"a.csv": "src,dst,w,w\n1,2,3,4\n"}, {}, ("a.csv", "--weight")),
        ({"a.csv": "src,dst\n"}, {}, ("a.csv",)),
        ({"a.csv": "src,dst\n1,2\n", "b.csv": "dst,src\n1,2\n"}, {}, ("b.csv", "row 1")),
        ({"a.csv": f"{2**64},{2**70}\n"}, {}, ("a.csv",)),
        ({"a.parquet": "weight"}, {}, ("a.parquet", "weight")),
        ({"a.parquet": "lists"}, {}, ("a.parquet",)),
        ({"a.parquet": "empty"}, {}, ("a.parquet",)),
        ({"a.parquet": "bytes"}, {"id_type": "int64"}, ("a.parquet",)),
        ({"a.csv": "1,2\n", "a.tsv": "1\t2\n"}, {}, ()),
        ({}, {}, ()),
    ],
)
def test_columns_that_are_not_there(tmp_path, files, options, named):
    for name, content in files.items():
        if name.endswith("parquet"):
            FRAMES[content].to_parquet(tmp_path / name)
        else:
            (tmp_path / name).write_text(content)
    path = tmp_path / next(iter(files)) if len(files) == 1 else tmp_path
    refused(path, *named, error=(InputError, UsageError), **options)


def test_files_that_are_not_matrices(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.ones(3))
    refused(path)
    np.savez(path, data=np.ones(2), indices=[0, 9], indptr=[0, 1, 2], shape=[2, 2])
    refused(path)
    np.savez(path, data=np.array([1, -1.0]), indices=[0, 1], indptr=[0, 1, 2], shape=[2, 2])
    refused(path, path.name, "row 2", "-1.0")
    path.write_text("1 2")
    refused(path)


BASE, NOON = 17 * 10**17, "2026-11-20T12:00:00"


@pytest.mark.parametrize(
    ("values", "since", "until", "kept"),
    [
        # Milliseconds of today, whose nanoseconds no float holds.
        ([f"{NOON}.00{n}" for n in (1, 3, 5)], f"{NOON}.003", None, [1, 2]),
        ([f"{NOON}.00{n}" for n in (1, 3, 5)], None, f"{NOON}.003", [0]),
        # Nanoseconds, with and without a zone.
        (
            [f"{NOON}.00000000{n}" for n in (1, 2, 3)],
            "2026-11-20T14:00:00.000000002+02:00",
            "2026-11-20 12:00:00.000000003",
            [1],
        ),
        ([BASE + n for n in (1, 51, 101)], str(BASE + 50), None, [1, 2]),
        ([BASE + n for n in (1, 51, 101)], BASE + 51, BASE + 101, [1]),  # as numbers, from Python
        # Between whole numbers, and beyond them.
        ([2, 3, 4], "2.5", "3.5", [1]),
        ([-(2**63), 0, 2**63 - 1], str(-(2**70)), "1e30", [0, 1, 2]),
        ([-(2**63), 0, 2**63 - 1], str(2**63), None, []),
        ([0.1, 0.2, 0.3], "0.2", 0.3, [1]),
        # Bounds of another type than the times.
        ([1, 2, 3], "2026-11-20", None, None),
        ([1, 2, 3], None, "nan", None),
        ([NOON] * 3, None, "5", None),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_window_is_cut_exactly_at_its_bounds(tmp_path, suffix, values, since, until, kept):
    frame = pd.DataFrame({"src": range(3), "dst": range(3), "t": values})
    path = tmp_path / f"a.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    options = {"time": "t", "since": since, "until": until}
    if kept is None:
        refused(path, "since" if since else "until", error=UsageError, **options)
    else:
        (batch,) = batches(path, **options)
        assert batch.table["source"].to_pylist() == kept


MARK = "0,0,1,0\n1,1,1,1\n"  # two good rows before each bad one


@pytest.mark.parametrize(
    ("row", "options"),
    [
        (",1,1,1", {}),
        ("1.5,1,1,1", {}),
        (f"{2**63},1,1,1", {}),
        ("-1,1,1,1", {"id_type": "uint64"}),
        ("1,1,-0.5,1", {}),
        ("1,1,heavy,1", {}),
        ("1,1,1,soon", {}),
        ("1,1,1,1,", {}),
        ('1,"1"1,1,1', {}),
        (",1,1,1", {"id_type": "string"}),
    ],
)
def test_bad_rows_of_csv(tmp_path, row, options):
    path = tmp_path / "a.csv"
    path.write_text(f"{MARK}{row}\n{MARK}{row}\n{MARK}")
    options = {"id_type": "int64", "weight": "2", "time": "3", "header": "no"} | options
    kept, bad = skipped(path, **options)
    assert bad == [3, 6]
    assert kept.num_rows == 6
    refused(path, path.name, "row 3", row, **options)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("src", None),
        ("src", 1.5),
        ("weight", float("nan")),
        ("weight", -1.0),
        ("t", None),
    ],
)
def test_bad_rows_of_parquet(tmp_path, column, value):
    path = tmp_path / "a.parquet"
    columns = {"src": [0.0, 1, 2, 3], "dst": [1.0, 2, 3, 4], "weight": [1.0, 1, 1, 1]}
    columns |= {"t": [1.0, 2, 3, 4]}
    columns[column][2] = value
    pq.write_table(pa.table(columns), path, row_group_size=2)
    kept, bad = skipped(path, time="t")
    assert bad == [3]
    assert kept["source"].to_pylist() == [0, 1, 3]
    refused(path, path.name, "row 3", time="t")


@pytest.mark.parametrize(
    ("columns", "options", "bad"),
    [
        ({"src": np.array([0, 2**63, 5], np.uint64)}, {"id_type": "int64"}, [2]),
        ({"src": [1, -1, 2]}, {"id_type": "uint64"}, [2]),
        ({"src": pa.array([b"a", b"\xff", b"c"])}, {"id_type": "string"}, [2]),
        ({"t": pa.array([0, 10**13, 1], pa.timestamp("s"))}, {"time": "t"}, [2]),  # beyond ns
    ],
)
def test_values_that_do_not_fit_their_type(tmp_path, columns, options, bad):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"src": [1, 2, 3], "dst": [1, 2, 3]} | columns), path)
    assert skipped(path, **options)[1] == bad


def test_a_header_in_spite_of_the_option(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("src,dst\n1,2\n3,4\n")
    refused(path, "a.csv", "row 1", header="no")
    kept, bad = skipped(path, header="no")
    assert (kept.num_rows, bad) == (2, [1])


@pytest.mark.parametrize("files", ["night/*.csv", "night", "night/1.csv"])
def test_files_in_an_archive_are_read_as_others(tmp_path, files):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in (1, 2):
            archive.writestr(f"night/{number}.csv", f"src,dst\n{number},9\n")
    found = table(f"zip://{files}::{tmp_path / 'a.zip'}")
    assert found["source"].to_pylist() == ([1] if files.endswith("1.csv") else [1, 2])
    lists = table(f"zip://night::{tmp_path / 'a.zip'}", format="edgelists")
    assert lists["graph"].to_pylist() == ["1", "2"]


def test_an_archive_that_is_replaced_is_another_input(tmp_path):
    stamps = []
    for name in ("old.zip", "new.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("e.csv", "src,dst\n1,2\n")
        (tmp_path / name).rename(tmp_path / "a.zip")
        stamps.append(EtlJob(f"zip://e.csv::{tmp_path / 'a.zip'}", EtlOptions()).stamps())
    assert stamps[0] != stamps[1]
