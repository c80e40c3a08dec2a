import csv
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels import text_rules
from penstock.kernels.cpu import text as cpu
from penstock.kernels.naive import text as naive

BACKENDS = pytest.mark.parametrize("backend", [naive, cpu], ids=["naive", "cpu"])


def as_bytes(text):
    return np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)


def split(backend, text, columns=3, delimiter=",", quote='"', capacity=100, **options):
    options = {"comments": False, "multiline": True} | options
    return backend.split_rows(
        as_bytes(text), capacity, np.arange(columns, dtype=np.int32), ord(delimiter),
        ord(quote) if quote else 0, **options,
    )  # fmt: skip


def fields(backend, text, **options):
    """Return every row as a list of texts, whole ones only."""
    data = as_bytes(text)
    starts, ends, widths, *_ = split(backend, text, **options)
    quote = ord('"') if options.get("quote", '"') else 0
    columns = []
    for i in range(len(starts)):
        offsets, copied = backend.gather(data, starts[i], ends[i], quote)
        columns.append([copied[a:b].tobytes() for a, b in pairwise(offsets)])
    return [
        [column[row] for column in columns][:width] if width > 0 else int(width)
        for row, width in enumerate(widths)
    ]


# Few characters, so that quotes, newlines and delimiters meet in every order.
SNIPPETS = st.text('ab1-, \t"\r\n#%é', max_size=60).map(lambda text: text + "\n")


@settings(deadline=None, max_examples=150)
@given(SNIPPETS, st.sampled_from([",", " ", "\t"]), st.booleans(), st.booleans(), st.booleans(),
       st.sampled_from([1, 3, 100]))  # fmt: skip
@example('a,"b\n', ",", True, False, True, 100)
@example("\r\r\n1,2\n", ",", True, False, True, 100)
@example('"a"\r\n"b"\rc\n', ",", True, False, False, 100)
def test_both_cut_the_same(text, delimiter, quoting, comments, multiline, capacity):
    options = {
        "delimiter": delimiter, "quote": '"' if quoting and delimiter != " " else "",
        "comments": comments, "multiline": multiline, "capacity": capacity,
        "returns": "\r" in text,
    }  # fmt: skip
    for ours, truth in zip(split(cpu, text, **options), split(naive, text, **options), strict=True):
        np.testing.assert_array_equal(ours, truth)


@BACKENDS
@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.text('ab,"\n é', min_size=1, max_size=5), min_size=3, max_size=3)))
def test_what_python_writes_is_read(backend, rows):
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    read = fields(backend, written.getvalue() or "\n")
    assert [[field.decode() for field in row] for row in read] == rows


@BACKENDS
def test_runs_of_blanks_are_one_delimiter(backend):
    text = "# nodes 3\n1\t2\r\n\n  3   4 \t 5\n% more\n6 7"
    assert fields(backend, text + "\n", delimiter=" ", quote="", comments=True) == [
        [b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7"],
    ]  # fmt: skip


@BACKENDS
def test_lines_are_counted_through_quotes_comments_and_empty_lines(backend):
    text = 'a,b\n\n"x\ny",c\n#no\nd,e\n'
    *_, lines, rows, consumed, passed = split(backend, text, comments=True)
    assert lines.tolist() == [0, 2, 5]
    assert [text[row] for row in rows] == ["a", '"', "d"]
    assert (consumed, passed) == (len(text), 6)


@BACKENDS
@pytest.mark.parametrize("delimiter", [",", " "])
def test_a_carriage_return_without_a_newline_is_told(backend, delimiter):
    def rows(text):
        text = text.replace(",", delimiter)
        quote = '"' if delimiter == "," else ""
        return fields(backend, text, delimiter=delimiter, quote=quote, comments=True)

    lone = text_rules.LONE_RETURN
    assert rows("1,2\r3,4\n5,6\n") == [lone, [b"5", b"6"]]
    assert rows("1,2\r\n3,4\r\r\n\r\n\r\r\n") == [[b"1", b"2"], [b"3", b"4"]]
    assert rows("#1,2\r3,4\n# 5,6\r\n7,8\n") == [lone, [b"7", b"8"]]  # in a comment, too
    assert rows("1\r,2\n3,4\n") == [lone, [b"3", b"4"]]
    assert rows("\r1,2\n\r# 3,4\n") == [lone, lone]
    if delimiter == ",":
        assert rows('"1\r1",2\n') == [[b"1\r1", b"2"]]  # a value may hold it


@BACKENDS
def test_wrong_quotes_are_told(backend):
    assert fields(backend, '1,"a"b,3\n1,2,3\n')[0] == text_rules.AFTER_QUOTE
    assert fields(backend, '1,"a,3\n1,2,3\n', multiline=False) == [
        text_rules.OPEN_QUOTE, [b"1", b"2", b"3"],
    ]  # fmt: skip
    *_, consumed, _ = split(backend, '1,2,3\n1,"a,3\n1,2,3\n')
    assert consumed == 6


NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([str(n) for e in (63, 64) for n in range(2**e - 2, 2**e + 3)]),
    st.sampled_from([str(-n) for n in range(2**63 - 2, 2**63 + 3)]),
    st.text("0123456789+- .e", max_size=24),
    st.from_regex(r"\A[ \t]*[+-]?0*[0-9]{1,20}[ \t]*\Z"),
)


def ranges(texts):
    data = as_bytes("".join(texts) + "\0")
    ends = np.cumsum([len(text.encode()) for text in texts]).astype(np.int32)
    return data, np.concatenate([[0], ends[:-1]]).astype(np.int32), ends


@settings(deadline=None, max_examples=120)
@given(st.lists(NUMBERS, min_size=1), st.booleans())
def test_integers(texts, unsigned):
    data, starts, ends = ranges(texts)
    values, good = cpu.parse_integers(data, starts, ends, unsigned=unsigned)
    truth, sound = naive.parse_integers(data, starts, ends, unsigned=unsigned)
    np.testing.assert_array_equal(good, sound)
    np.testing.assert_array_equal(values, truth)


@settings(deadline=None, max_examples=120)
@given(
    st.lists(
        st.one_of(
            st.floats().map(repr),
            st.floats(0, 1).map("{:.3f}".format),
            st.text("0123456789+- .einfa_", max_size=12),
            st.from_regex(r"\A-?[0-9]{0,20}\.?[0-9]{0,25}\Z"),
        ),
        min_size=1,
    )
)
def test_floats_are_the_nearest(texts):
    data, starts, ends = ranges(texts)
    values, good = cpu.parse_floats(data, starts, ends)
    truth, sound = naive.parse_floats(data, starts, ends)
    np.testing.assert_array_equal(good, sound)
    np.testing.assert_array_equal(values[good], truth[good])


def test_unsigned_keeps_the_order():
    texts = ["0", "1", str(2**63 - 1), str(2**63), str(2**64 - 1)]
    values, good = cpu.parse_integers(*ranges(texts), unsigned=True)
    assert good.all()
    assert values.tolist() == [int(text) - 2**63 for text in texts]
