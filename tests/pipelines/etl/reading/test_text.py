"""Text wherever it is cut: blocks, byte ranges, compressed streams, quotes, line endings."""

import bz2
import gzip
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Graph, etl
from penstock.errors import InputError
from penstock.pipelines.etl.reading import text
from penstock.pipelines.etl.reading.batch import Piece
from penstock.pipelines.etl.reading.text import Dialect, read_blocks

CSV = Dialect.of("csv", ",")
BOTH = np.array([0, 1], np.int32)


def rows(piece, dialect=CSV, header=False):
    """Return [(line, first field, second field), ...]."""
    found = []
    for block in read_blocks(piece, BOTH, dialect, header=header):
        first, second = block.fields(0), block.fields(1)
        for row in range(len(block.widths)):
            line = block.first_line + int(block.lines[row])
            found.append((line, first.text(row), second.text(row)))
    return found


@pytest.mark.parametrize("block", [8, 20, 100])
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.text("ab", max_size=9), st.text("ab", max_size=4)), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_every_row_once_wherever_it_is_cut(tmp_path, block, pairs, end, ended, cuts):
    content = end.join(f"{a},{b}" for a, b in pairs) + (end if ended else "")
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    whole = [(line, a, b) for line, (a, b) in enumerate(pairs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK", block)
        patch.setattr(text, "_CHUNK", 3)
        patch.setattr(text, "BATCH_ROWS", 4)
        assert rows(Piece(str(path), "csv")) == whole
        bounds = [0, *sorted(c for c in cuts if c < len(content)), len(content)]
        found = []
        for start, stop in pairwise(bounds):
            found += rows(Piece(str(path), "csv", start, stop))
    assert [row[1:] for row in found] == pairs


PACKED = {
    "a.csv": lambda data: data,
    "a.csv.gz": gzip.compress,
    "a.csv.zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "a.csv.bz2": bz2.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_streams_are_read_block_by_block(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text, "BLOCK", 1000)
    expected = [(i, str(i), str(i * i)) for i in range(3000)]
    content = "".join(f"{a},{b}\n" for _, a, b in expected).encode()
    (tmp_path / name).write_bytes(PACKED[name](content))
    piece = Piece(str(tmp_path / name), "csv")
    blocks = list(read_blocks(piece, BOTH, CSV, header=False))
    assert len(blocks) > 20
    assert max(len(block.data) for block in blocks) <= 1100
    assert rows(piece) == expected


def test_gzip_files_one_after_the_other(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,1\n") + gzip.compress(b"b,2\n"))
    assert rows(Piece(str(tmp_path / "a.csv.gz"), "csv")) == [(0, "a", "1"), (1, "b", "2")]


def test_damaged_streams_are_named(tmp_path):
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(np.random.default_rng(0).bytes(10_000))
    for damaged in (packed[:5000], b"src,dst\n1,2\n", packed[:3000] + b"?" * 7000):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.csv\.gz"):
            rows(Piece(str(path), "csv"))


@pytest.mark.parametrize("block", [17, 30, 1000])
def test_quoted_values_hold_anything(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "BLOCK", block)
    (tmp_path / "a.csv").write_text('"a,\n1",x\n"say ""b""","y\n"\n')
    expected = [(0, "a,\n1", "x"), (2, 'say ""b""', "y\n")]
    assert rows(Piece(str(tmp_path / "a.csv"), "csv")) == expected


def test_only_csv_has_quotes(tmp_path):
    (tmp_path / "a.txt").write_text('"a b\n')
    piece = Piece(str(tmp_path / "a.txt"), "edgelist")
    assert rows(piece, Dialect.of("edgelist", " ")) == [(0, '"a', "b")]
    assert rows(piece, Dialect.of("triples", "\t"))[0][1] == '"a b'


def test_the_header_is_left_out_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\nsrc,dst\n1,2\n3,4\n")
    assert rows(Piece(str(path), "csv"), header=True) == [(2, "1", "2"), (3, "3", "4")]
    assert rows(Piece(str(path), "csv", 9, 17), header=True) == [(0, "1", "2"), (1, "3", "4")]


def test_byte_order_marks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,2\n", encoding="utf-8-sig")
    assert rows(Piece(str(path), "csv")) == [(0, "1", "2")]
    path.write_text("1,2\n", encoding="utf-16")
    with pytest.raises(InputError, match=r"a\.csv"):
        rows(Piece(str(path), "csv"))


# Files as programs of old Macs write them, whole or in part; with the row that is told.
RETURNS = {
    "all.txt": ("1 2\r3 4\r5 6\r", 1),
    "later.txt": ("1 2\n3 4\r5 6\n", 2),
    "end.edgelist": ("1 2\n3 4\n5 6\r7 8\r", 3),
    "all.csv": ("src,dst\r1,2\r3,4\r", 1),
    "header.csv": ("src,dst\r1,2\n3,4\n", 1),
    "wide.csv": ("src,dst,note\n1,2,x\r3,4\n5,6,y\n", 2),
    "triples.txt": ("a\tr\tb\nc\tr\td\re\tr\tf\n", 2),
}


@pytest.mark.parametrize("name", RETURNS)
def test_lines_that_end_with_carriage_returns_are_not_lost(tmp_path, cluster, name):
    content, row = RETURNS[name]
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(InputError, match=rf"{name}, row {row}"):
        etl(tmp_path / name, tmp_path / "g", cluster=cluster)
    if row > 1:  # row 1 tells what the columns are
        report = etl(tmp_path / name, tmp_path / "g", cluster=cluster, on_bad_rows="skip")
        assert report.bad_rows == 1
    # Both kinds that a newline ends are lines.
    for end in ("\r\n", "\r\r\n"):
        path = tmp_path / f"ends-{name}"
        path.write_bytes(content.replace("\r", end).encode())
        more = {"on_bad_rows": "skip"} if name == "wide.csv" else {}
        report = etl(path, tmp_path / "g", cluster=cluster, overwrite=True, **more)
        lines = content.replace("\r", "\n").splitlines()
        rows = [line for line in lines if line[0] not in "#s"]
        assert report.rows_read - report.bad_rows == len(rows) - (name == "wide.csv")


def test_other_files_and_other_tables_are_told_as_well(tmp_path, cluster):
    (tmp_path / "e.csv").write_text("src,dst\n1,2\n")
    (tmp_path / "f.csv").write_bytes(b"src,dst\r1,3\n1,4\n")
    with pytest.raises(InputError, match=r"f\.csv, row 1"):
        etl([tmp_path / "e.csv", tmp_path / "f.csv"], tmp_path / "g", cluster=cluster)
    (tmp_path / "n.csv").write_bytes(b"id,label\n1,a\n2,b\r3,c\n")
    with pytest.raises(InputError, match=r"n\.csv, row 3"):
        etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster, nodes=tmp_path / "n.csv")


def test_a_carriage_return_in_quotes_is_part_of_the_value(tmp_path, cluster):
    (tmp_path / "e.csv").write_bytes(b'src,dst\n"a\rb",c\n"d\r\ne",c\n')
    etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster)
    assert Graph.open(tmp_path / "g").user_ids().to_pylist() == ["a\rb", "c", "d\r\ne"]


@pytest.mark.parametrize("packed", [False, True])
def test_the_first_line_may_be_long_and_comments_many(tmp_path, cluster, packed):
    long = "x" * 1_500_000
    files = {
        "header.csv": f"src,dst,{long}\n1,2,0\n3,4,0\n",
        "value.csv": f"{long},a\nb,c\n",
        "comment.txt": f"# {long}\n1 2\n3 4\n",
        "comments.txt": "# a line of a licence\n" * 80_000 + "1 2\n3 4\n",
        "quoted.csv": f'src,dst,"{long}"\n1,2,0\n3,4,0\n',
    }
    for name, content in files.items():
        path = tmp_path / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(content.encode(), 1) if packed else content.encode())
        report = etl(path, tmp_path / name.partition(".")[0], cluster=cluster)
        assert report.rows_read == 2, name
