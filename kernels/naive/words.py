"""The words of UTF-8 text: counting them and looking them up, the truth.

Text comes in blocks of bytes, ``cut`` so that no word lies in two. Words are what blanks separate,
those that ``str.split`` takes: of ASCII bytes 9 to 13 and 28 to 32, and Unicode's, such as the
no-break space and the ideographic one. A newline, and no other blank, ends a sentence.
Lists of words are two arrays: bytes (b,) uint8, one word after another, and offsets (n + 1,) int64.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from penstock.arrays import Array

BLANKS = bytes([*range(9, 14), *range(28, 33)])  # of ASCII
_BLANK = re.compile(
    rb"[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f"
    rb"|\xe3\x80\x80"
)
_NEWLINE = 10


def first_bad_byte(data: Array) -> int:
    """Return where text stops being UTF-8, or -1; its end may not break a character either."""
    try:
        data.tobytes().decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def cut(data: Array) -> int:
    """Return the bytes up to the last newline, that included; without one, up to the last blank.

    Only blanks of ASCII are looked for. The rest belongs before the next block. 0: a single word
    that may go on there.
    """
    newlines = np.flatnonzero(data == _NEWLINE)
    blanks = np.flatnonzero(np.isin(data, list(BLANKS)))
    return int(newlines[-1]) + 1 if len(newlines) else int(blanks[-1]) + 1 if len(blanks) else 0


class WordTable:
    """Words, numbered as they first came, and how often each came."""

    def __init__(self, data: Array | None = None, offsets: Array | None = None) -> None:
        """Begin with these words, each 0 times; they differ."""
        self._counts: dict[bytes, int] = {}
        if data is not None and offsets is not None:
            self._counts = dict.fromkeys(_list(data, offsets), 0)

    def __len__(self) -> int:
        """Return how many words differ."""
        return len(self._counts)

    def count(self, data: Array) -> int:
        """Count the words of a block; return how many there are."""
        words = [word for line in _lines(data) for word in line]
        for word in words:
            self._counts[word] = self._counts.get(word, 0) + 1
        return len(words)

    def add(self, data: Array, offsets: Array, counts: Array) -> None:
        """Count words that another table has counted."""
        for word, count in zip(_list(data, offsets), counts, strict=True):
            self._counts[word] = self._counts.get(word, 0) + int(count)

    def words(self) -> tuple[Array, Array, Array]:
        """Return the words and their counts: bytes, offsets, counts (n,) int64."""
        return *_arrays(list(self._counts)), np.array(list(self._counts.values()), np.int64)

    def look_up(self, data: Array, longest: int, begun: int = 0) -> tuple[Array, Array]:
        """Return the numbers of a block's words, -1 for unknown ones, and where sentences end.

        longest  words after which a sentence ends if its line does not
        begun    words that its first sentence had in the block before
        ->       tokens (n,) int32; ends (sentences,) int64: places in tokens before which one ends.
                 What comes after the last end goes on in the next block.
        """
        numbers = {word: number for number, word in enumerate(self._counts)}
        tokens: list[int] = []
        ends: list[int] = []
        lines = _lines(data)
        for i, line in enumerate(lines):
            for word in line:
                tokens.append(numbers.get(word, -1))
                begun += 1
                if begun == longest:
                    ends.append(len(tokens))
                    begun = 0
            if i < len(lines) - 1 and begun:
                ends.append(len(tokens))
                begun = 0
        return np.array(tokens, np.int32), np.array(ends, np.int64)


def vocabulary(
    data: Array, offsets: Array, counts: Array, min_count: int, max_words: int | None = None
) -> tuple[Array, Array, Array]:
    """Return the words that came ``min_count`` times, the most frequent first, by bytes if equal.

    max_words  at most so many, if given
    ->         bytes, offsets, counts
    """
    pairs = [
        (-int(count), word)
        for word, count in zip(_list(data, offsets), counts, strict=True)
        if count >= min_count
    ]
    pairs = sorted(pairs)[:max_words]
    return *_arrays([word for _, word in pairs]), np.array([-c for c, _ in pairs], np.int64)


def _lines(data: Array) -> list[list[bytes]]:
    """Return the words of each line; the last line is what follows the last newline."""
    return [[w for w in _BLANK.split(line) if w] for line in data.tobytes().split(b"\n")]


def _list(data: Array, offsets: Array) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


def _arrays(words: list[bytes]) -> tuple[Array, Array]:
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=offsets[1:])
    return np.frombuffer(b"".join(words), np.uint8), offsets
