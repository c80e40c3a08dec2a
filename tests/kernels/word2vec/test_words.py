from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrays import Array
from penstock.kernels.cpu import words as cpu
from penstock.kernels.naive import words as naive


def array(text: bytes) -> Array:
    return np.frombuffer(text, np.uint8)


def strings(words: tuple[Array, Array] | tuple[Array, Array, Array]) -> list[bytes]:
    text, offsets = words[0], words[1]
    return [text[a:b].tobytes() for a, b in pairwise(offsets)]


def assert_same(got: Any, truth: Any) -> None:
    assert len(got) == len(truth)
    for ours, expected in zip(got, truth, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


pieces = [
    b"a",
    b"b",
    b"ab",
    b" ",
    b"\n",
    b"\t\r\n",
    b"\x1f",
    b"\0",
    b"\xc3\xa9",
    b"\xff",
    "\u00a0".encode(),
    "\u3000".encode(),
    b"\xe2\x80",
    b"\x8b",
    b"long" * 9,
]
texts = st.lists(st.sampled_from(pieces), max_size=60).map(b"".join)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=30).map(str.encode), texts))
@settings(max_examples=100)
def test_the_first_bad_byte_is_the_one_that_python_finds(text: bytes) -> None:
    data = array(text)
    assert cpu.first_bad_byte(data) == naive.first_bad_byte(data)


@pytest.mark.parametrize("lead", range(0xC0, 0x100))
def test_every_lead_byte_is_followed_by_what_unicode_allows(lead: int) -> None:
    for second in range(0x70, 0xC8):
        for tail in (b"\x80\x80", b"\xbfa", b"a", b""):
            data = array(b"0123456" + bytes([lead, second]) + tail)
            assert cpu.first_bad_byte(data) == naive.first_bad_byte(data)


@given(texts)
@settings(max_examples=100)
def test_blocks_end_after_newlines_or_else_after_blanks(text: bytes) -> None:
    assert cpu.cut(array(text)) == naive.cut(array(text))
    assert b"\n" not in text[cpu.cut(array(text)) :]


@given(st.lists(texts, max_size=4), st.integers(1, 7), st.integers(0, 3))
@settings(max_examples=100)
def test_words_are_counted_and_found(blocks: list[bytes], longest: int, begun: int) -> None:
    ours, truth = cpu.WordTable(), naive.WordTable()
    for block in blocks:
        assert ours.count(array(block)) == truth.count(array(block))
    assert len(ours) == len(truth)
    assert_same(ours.words(), truth.words())
    known = naive.vocabulary(*truth.words(), 2)
    assert_same(cpu.vocabulary(*ours.words(), 2), known)
    ours, truth = cpu.WordTable(*known[:2]), naive.WordTable(*known[:2])
    for block in blocks:
        begun %= longest
        got, wanted = (table.look_up(array(block), longest, begun) for table in (ours, truth))
        assert_same(got, wanted)


def test_words_are_what_python_splits_in_ascii() -> None:
    text = b"".join(b"w%c" % byte + bytes([byte]) for byte in range(128)) + b" end"
    table = cpu.WordTable()
    assert table.count(array(text)) == len(text.decode().split())
    assert strings(table.words())[-1] == b"end"
    assert sorted(strings(table.words())) == sorted({w.encode() for w in text.decode().split()})


def test_words_are_what_python_splits_in_unicode() -> None:
    points = [c for c in map(chr, range(0x80, 0x11000)) if not "\ud800" <= c <= "\udfff"]
    truth = "".join(f"w{c}" for c in points)
    for block in (truth, *(f"a{c}" for c in points if c.isspace())):
        table, slow = cpu.WordTable(), naive.WordTable()
        assert table.count(array(block.encode())) == len(block.split())
        assert slow.count(array(block.encode())) == len(block.split())
        wanted = list(dict.fromkeys(word.encode() for word in block.split()))
        assert strings(table.words()) == strings(slow.words()) == wanted
        assert table.look_up(array(block.encode()), 1 << 20)[0].tolist() == [
            wanted.index(word.encode()) for word in block.split()
        ]


def test_sentences_end_with_lines_or_when_they_are_long() -> None:
    text = array(b"\n\none two  three four five\r\n \nsix one")
    table = cpu.WordTable()
    table.count(text)
    tokens, ends = table.look_up(text, 3)
    assert tokens.tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert ends.tolist() == [3, 5]  # the last line may go on
    tokens, ends = table.look_up(array(b"one two three"), 3, begun=2)
    assert ends.tolist() == [1]


def test_a_table_grows_with_its_words() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.zipf(1.3, 60_000) % 30_000
    table = cpu.WordTable()
    for part in np.array_split(numbers, 3):
        table.count(array(" ".join(f"word{n:d}" for n in part).encode()))
    table.count(array(b"x" * 500_000))
    unique, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    order = np.argsort(first)
    assert strings(table.words()) == [*(b"word%d" % n for n in unique[order]), b"x" * 500_000]
    np.testing.assert_array_equal(table.words()[2], [*counts[order], 1])


def test_tables_of_threads_become_one() -> None:
    rng = np.random.default_rng(1)
    blocks = [
        array(" ".join(f"w{n}" for n in rng.integers(0, 5000, 20_000)).encode()) for _ in range(4)
    ]

    def counted(block: Array) -> tuple[Array, Array, Array]:
        table = cpu.WordTable()
        table.count(block)
        return table.words()

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(counted, blocks))
    one, sums, truth = cpu.WordTable(), cpu.WordTable(), naive.WordTable()
    for block, part in zip(blocks, parts, strict=True):
        one.count(block)
        sums.add(*part)
        truth.add(*part)
    assert_same(sums.words(), one.words())
    assert_same(truth.words(), one.words())


def test_frequent_words_come_first_and_equal_ones_by_their_bytes() -> None:
    same = b"sixteen-bytes-or-more-"
    text = b"b a b c \xc3\xa9 " + same + b"2 " + same + b"1 " + same + b" a\0 a\0 once"
    table = cpu.WordTable()
    table.count(array(text + b" c \xc3\xa9 a " + 2 * (same + b"2 ") + same + b"1 " + same))
    listed = [same + b"2", b"a", b"a\0", b"b", b"c", same, same + b"1", b"\xc3\xa9"]
    words = cpu.vocabulary(*table.words(), 2)
    assert strings(words) == listed
    assert words[2].tolist() == [3, *[2] * 7]
    for most in range(9):
        assert strings(cpu.vocabulary(*table.words(), 2, most)) == listed[:most]
        assert_same(
            cpu.vocabulary(*table.words(), 2, most), naive.vocabulary(*table.words(), 2, most)
        )
    assert strings(cpu.vocabulary(*table.words(), 9)) == []
