"""Text wherever it is cut: blocks, byte ranges, compressed streams, quotes, ends of lines."""

import csv
import gzip
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.pipelines.tables import text
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.split import Dialect, split_rows
from penstock.pipelines.tables.text import TextShape

FRESH = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WORDS = st.text('ab ,"\n', max_size=6)
PLAIN = st.text("ab ", max_size=9)


def rows(path, kind="csv", start=0, stop=-1, *, delimiter=",", header=False, block=None):
    """Return (line, first field, second field) of good rows, and the lines of the others."""
    shape = TextShape(("0", "1"), delimiter, header)
    good, bad = [], []
    with pytest.MonkeyPatch.context() as patch:
        if block:
            patch.setattr(text, "BLOCK", block)
        piece = Piece(str(path), kind, start, stop)
        for found in read_rows(piece, {0: "string", 1: "string"}, shape):
            wrong = np.zeros(len(found), bool) if found.checks.bad is None else found.checks.bad
            for row, pair in enumerate(zip(found.columns[0], found.columns[1], strict=True)):
                line = found.source.number(row)
                if wrong[row]:
                    bad.append(line)
                else:
                    good.append((line, *(one.as_py() for one in pair)))
    return good, bad


def numbered(pairs):
    """Return rows with their lines; those of empty fields alone are never empty lines."""
    line, found = 1, []
    for first, second in pairs:
        found.append((line, first, second))
        line += 1 + first.count("\n") + second.count("\n")
    return found


@FRESH
@given(
    st.lists(st.tuples(WORDS, WORDS), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([8, 20, 100, 1 << 20]),
    st.booleans(),
)
def test_quoted_values_hold_anything_wherever_a_block_ends(
    tmp_path, pairs, end, quoting, block, packed
):
    written = io.StringIO()
    csv.writer(written, lineterminator=end, quoting=quoting).writerows(pairs)
    data = written.getvalue().encode()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    if max(len(first) + len(second) for first, second in pairs) * 2 + 8 < block:
        assert rows(path, block=block) == (numbered(pairs), [])


@FRESH
@given(
    st.lists(st.tuples(PLAIN, PLAIN), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.lists(st.integers(0, 300), max_size=6),
    st.sampled_from([12, 20, 100]),
)
def test_every_row_once_wherever_pieces_end(tmp_path, pairs, end, ended, cuts, block):
    content = end.join(f"{a},{b}" for a, b in pairs) + (end if ended else "")
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    bounds = [0, *sorted(c for c in cuts if c < len(content)), len(content)]
    found = []
    for start, stop in pairwise(bounds):
        found += rows(path, start=start, stop=stop, block=block)[0]
    assert found == numbered(pairs)


@FRESH
@given(st.text('ab," \r\n', max_size=40), st.booleans())
@example('a"b,c\n"d"e,f\n', True)
@example('"a\rb",c\n\r\r\n', True)
@example('a,"b\nc,d\n', True)
def test_pyarrow_reads_what_is_cut_row_by_row(tmp_path, content, whole):
    data = content.encode() + b"\n"
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    good, bad = [], []
    for row in split_rows(data, Dialect.of("csv", ","), multiline=whole):
        if row.fault is None and len(row.fields) == 2:
            good.append((row.line + 1, *(field.decode() for field in row.fields)))
        else:
            bad.append(row.line + 1)
    assert rows(path, stop=-1 if whole else len(data)) == (good, bad)


@FRESH
@given(st.lists(st.sampled_from(["a b", " a\tb ", "# a b", " %", "a #", "", " ", "a b c"])))
def test_blanks_and_comments(tmp_path, lines):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines))
    good, bad = [], []
    for line, fields in enumerate(map(str.split, lines), 1):
        if fields and fields[0] not in ("#", "%"):
            (good if len(fields) == 2 else bad).append((line, *fields))
    expected = good, [line for line, *_ in bad]
    assert rows(path, "edgelist", delimiter=" ") == expected
    assert rows(path, "edgelist", delimiter=" ", block=16) == expected


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('1,2\n3,"4\n' + "5,6\n" * 100)
    for block in (64, 1 << 20):
        good, bad = rows(path, block=block)
        assert (len(good), bad) == (101, [2])


def test_the_header_is_left_out_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('\n"src\n1",dst\n1,2\n3,4\n')
    assert rows(path, header=True) == ([(4, "1", "2"), (5, "3", "4")], [])
    assert rows(path, start=13, stop=21, header=True)[0] == [(4, "1", "2"), (5, "3", "4")]
    path.write_text("src,dst")
    assert rows(path, header=True) == ([], [])


def test_other_encodings_and_damaged_streams_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,2\n", encoding="utf-16")
    with pytest.raises(InputError, match=r"a\.csv"):
        rows(path)
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(np.random.default_rng(0).bytes(10_000))
    for damaged in (packed[:5000], b"src,dst\n1,2\n", packed[:3000] + b"?" * 7000):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.csv\.gz"):
            rows(path)


def test_a_line_that_does_not_end_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x" * 1000)
    with pytest.raises(InputError, match=r"a\.csv"):
        rows(path, block=64)
