"""The words of UTF-8 text in Numba; names and meaning are naive/words.py's.

A table hashes: ``heads`` holds, at a place that a word's hash says or after it, its number plus 1.
Its kernels stop where an array is full, and go on where they stopped once it has grown. They
release the GIL: threads count blocks in tables of their own, which are added in the end, and look
words up in one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint8, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit

_NEWLINE = 10
_PRIME, _START = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_HALF, _TOP = np.uint64(32), np.uint64(0x8080808080808080)
_FIRST = 1024  # words for which a new table has room


def first_bad_byte(data: Array) -> int:
    """Return where text stops being UTF-8, or -1; its end may not break a character either."""
    whole = len(data) // 8 * 8
    return int(_first_bad_byte(_given(data), _given(data[:whole]).view(np.uint64)))


def cut(data: Array) -> int:
    """Return the bytes up to the last newline, that included; without one, up to the last blank.

    Only blanks of ASCII are looked for. The rest belongs before the next block. 0: a single word
    that may go on there.
    """
    return int(_cut(_given(data)))


class WordTable:
    """Words, numbered as they first came, and how often each came."""

    def __init__(self, data: Array | None = None, offsets: Array | None = None) -> None:
        """Begin with these words, each 0 times; they differ."""
        self._heads = np.zeros(4 * _FIRST, np.int32)
        self._hashes = np.zeros(_FIRST, np.uint64)
        self._counts = np.zeros(_FIRST, np.int64)
        self._offsets = np.zeros(_FIRST + 1, np.int64)
        self._bytes = np.zeros(16 * _FIRST, np.uint8)
        self._used = 0
        if data is not None and offsets is not None:
            self.add(data, offsets, np.zeros(len(offsets) - 1, np.int64))

    def __len__(self) -> int:
        """Return how many words differ."""
        return self._used

    def count(self, data: Array) -> int:
        """Count the words of a block; return how many there are."""
        given, at, words = _given(data), 0, 0
        while at < len(data):
            at, self._used, more, need = _count(given, at, self._used, *self._arrays())
            words += more
            self._grow(need)
        return words

    def add(self, data: Array, offsets: Array, counts: Array) -> None:
        """Count words that another table has counted."""
        given, at = (_given(data), _given(offsets), _given(counts)), 0
        while at < len(counts):
            at, self._used, need = _add(*given, at, self._used, *self._arrays())
            self._grow(need)

    def words(self) -> tuple[Array, Array, Array]:
        """Return the words and their counts: bytes, offsets, counts (n,) int64."""
        offsets = self._offsets[: self._used + 1].copy()
        return self._bytes[: offsets[-1]].copy(), offsets, self._counts[: self._used].copy()

    def look_up(self, data: Array, longest: int, begun: int = 0) -> tuple[Array, Array]:
        """Return the numbers of a block's words, -1 for unknown ones, and where sentences end.

        longest  words after which a sentence ends if its line does not
        begun    words that its first sentence had in the block before
        ->       tokens (n,) int32; ends (sentences,) int64: places in tokens before which one ends.
                 What comes after the last end goes on in the next block.
        """
        given = _given(data)
        words, lines = _sizes(given)
        tokens = np.empty(words, np.int32)
        ends = np.empty(lines + (begun + words) // longest, np.int64)
        heads, hashes, _, offsets, text = self._arrays()
        count = _look_up(given, longest, begun, heads, hashes, offsets, text, tokens, ends)
        return tokens, ends[:count].copy()

    def _arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        return self._heads, self._hashes, self._counts, self._offsets, self._bytes

    def _grow(self, need: int) -> None:
        """Make room for twice the words, and for ``need`` bytes more than there are places for."""
        if 2 * self._used >= len(self._hashes):
            size = 2 * len(self._hashes)
            self._hashes = _longer(self._hashes, size)
            self._counts = _longer(self._counts, size)
            self._offsets = _longer(self._offsets, size + 1)
            self._heads = np.zeros(4 * size, np.int32)
            _place(self._heads, self._hashes, self._used)
        if need:
            self._bytes = _longer(self._bytes, 2 * len(self._bytes) + need)


def vocabulary(
    data: Array, offsets: Array, counts: Array, min_count: int, max_words: int | None = None
) -> tuple[Array, Array, Array]:
    """Return the words that came ``min_count`` times, the most frequent first, by bytes if equal.

    max_words  at most so many, if given
    ->         bytes, offsets, counts
    """
    chosen = np.flatnonzero(counts >= min_count)
    if max_words and len(chosen) > max_words:  # and those as frequent as the last
        last = np.partition(counts[chosen], len(chosen) - max_words)[len(chosen) - max_words]
        chosen = chosen[counts[chosen] >= last]
    data, offsets = _given(data), _given(offsets)
    prefixes = np.empty((2, len(chosen)), np.uint64)
    _prefixes(data, offsets, chosen, prefixes)
    order = np.lexsort((prefixes[1], prefixes[0], -counts[chosen]))
    keys = np.stack([prefixes[0], prefixes[1], counts[chosen].astype(np.uint64)])[:, order]
    chosen = chosen[order]
    alike = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    for first, last in _runs(alike):  # words that differ after 16 bytes only
        some = chosen[first:last].tolist()
        some.sort(key=lambda i: data[offsets[i] : offsets[i + 1]].tobytes())
        chosen[first:last] = some
    chosen = chosen[:max_words]
    new = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(offsets[chosen + 1] - offsets[chosen], out=new[1:])
    text = np.empty(new[-1], np.uint8)
    _gather(data, offsets, chosen, new, text)
    return text, new, counts[chosen].astype(np.int64)


def _runs(alike: Array) -> list[tuple[int, int]]:
    """Return the ranges of places of which each is like the one before it."""
    edges = np.diff(np.r_[False, alike, False].astype(np.int8))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a), int(b) + 1) for a, b in zip(starts, stops, strict=True)]


def _given(array: Array) -> Array:
    """Return a read-only view: Numba compiles again for writable arrays."""
    view: Array = np.ascontiguousarray(array)[:]
    view.setflags(write=False)
    return view


def _longer(array: Array, size: int) -> Array:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer


# -- cutting ---------------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def _blank(byte: Any) -> Any:
    return byte <= uint8(32) and (byte >= uint8(28) or (uint8(9) <= byte and byte <= uint8(13)))


@njit(cache=True)
def _gap(data: Array, at: int) -> int:
    """Return how many bytes the blank has that begins here, 0 where none does."""
    byte = data[at]
    if byte < uint8(0xC2):
        return 1 if _blank(byte) else 0
    if byte > uint8(0xE3) or at + 1 == len(data):
        return 0
    second = data[at + 1]
    if byte == uint8(0xC2):
        return 2 if second == uint8(0x85) or second == uint8(0xA0) else 0
    if byte < uint8(0xE1) or at + 2 == len(data):
        return 0
    third = data[at + 2]
    if byte == uint8(0xE1):  # U+1680
        found = second == uint8(0x9A) and third == uint8(0x80)
    elif byte == uint8(0xE3):  # U+3000
        found = second == uint8(0x80) and third == uint8(0x80)
    elif second == uint8(0x80):  # U+2000 to U+200A, U+2028, U+2029, U+202F
        found = uint8(0x80) <= third <= uint8(0x8A) or third in (0xA8, 0xA9, 0xAF)
    else:  # U+205F
        found = second == uint8(0x81) and third == uint8(0x9F)
    return 3 if found else 0


@njit(cache=True, nogil=True)
def _cut(data: Array) -> int:
    blank = 0
    for at in range(len(data) - 1, -1, -1):
        if data[at] == _NEWLINE:
            return at + 1
        if blank == 0 and _blank(data[at]):
            blank = at + 1
    return blank


@njit(cache=True, nogil=True)
def _sizes(data: Array) -> tuple[int, int]:
    """Return the numbers of words and newlines."""
    words = lines = 0
    before, at = True, 0
    while at < len(data):
        gap = _gap(data, at)
        words += before and gap == 0
        lines += data[at] == _NEWLINE
        before = gap > 0
        at += max(gap, 1)
    return words, lines


@njit(cache=True, nogil=True)
def _first_bad_byte(data: Array, eights: Array) -> int:
    at, size = 0, len(data)
    while at < size:
        if at % 8 == 0 and at // 8 < len(eights) and eights[at // 8] & _TOP == uint64(0):
            at += 8
            continue
        byte = int64(data[at])
        if byte < 0x80:
            at += 1
            continue
        # How many bytes follow, and what the first of them may be (Unicode 3.9, table 3-7).
        follow, low, high = 0, 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            follow = 1
        elif 0xE0 <= byte <= 0xEF:
            follow = 2
            low = 0xA0 if byte == 0xE0 else 0x80
            high = 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            follow = 3
            low = 0x90 if byte == 0xF0 else 0x80
            high = 0x8F if byte == 0xF4 else 0xBF
        if follow == 0 or at + follow >= size:
            return at
        for k in range(1, follow + 1):
            if data[at + k] < low or data[at + k] > high:
                return at
            low, high = 0x80, 0xBF
        at += follow + 1
    return -1


# -- tables ----------------------------------------------------------------------------------------


@njit(cache=True)
def _next(data: Array, at: int) -> tuple[int, int, Any]:
    """Return where the word that begins at or after ``at`` begins and ends, and its hash."""
    gap = 0 if at == len(data) else _gap(data, at)
    while gap > 0:
        at += gap
        gap = 0 if at == len(data) else _gap(data, at)
    first, hashed = at, _START
    while at < len(data) and _gap(data, at) == 0:
        hashed = (hashed ^ uint64(data[at])) * _PRIME
        at += 1
    return first, at, _mixed(hashed)


@njit(cache=True, inline="always")
def _mixed(hashed: Any) -> Any:
    """Return a hash whose lower bits depend on all bits."""
    hashed = (hashed ^ (hashed >> _HALF)) * _MIX
    return hashed ^ (hashed >> _HALF)


@njit(cache=True)
def _find(
    data: Array,
    first: int,
    last: int,
    hashed: Any,
    heads: Array,
    hashes: Array,
    offsets: Array,
    text: Array,
) -> tuple[int, int]:
    """Return the number of a word, or -1, and its place in heads, or the free one for it."""
    mask = uint64(len(heads) - 1)
    place = int64(hashed & mask)
    while heads[place] != 0:
        word = heads[place] - 1
        if hashes[word] == hashed and offsets[word + 1] - offsets[word] == last - first:
            same = 0
            while same < last - first and text[offsets[word] + same] == data[first + same]:
                same += 1
            if same == last - first:
                return word, place
        place = int64(uint64(place + 1) & mask)
    return -1, place


@njit(cache=True)
def _enter(
    data: Array,
    first: int,
    last: int,
    hashed: Any,
    place: int,
    used: int,
    heads: Array,
    hashes: Array,
    offsets: Array,
    text: Array,
) -> None:
    heads[place] = used + 1
    hashes[used] = hashed
    offsets[used + 1] = offsets[used] + last - first
    for k in range(last - first):
        text[offsets[used] + k] = data[first + k]


@njit(cache=True, nogil=True)
def _count(
    data: Array,
    at: int,
    used: int,
    heads: Array,
    hashes: Array,
    counts: Array,
    offsets: Array,
    text: Array,
) -> tuple[int, int, int, int]:
    """Count from a byte on; return how far that went, words known, counted, and bytes needed."""
    counted = 0
    while True:
        first, last, hashed = _next(data, at)
        if first == last:
            return len(data), used, counted, 0
        word, place = _find(data, first, last, hashed, heads, hashes, offsets, text)
        if word < 0:
            if offsets[used] + last - first > len(text):
                return at, used, counted, last - first
            if used == len(hashes):
                return at, used, counted, 0
            word = used
            _enter(data, first, last, hashed, place, used, heads, hashes, offsets, text)
            used += 1
        counts[word] += 1
        counted += 1
        at = last


@njit(cache=True, nogil=True)
def _add(
    data: Array,
    ends: Array,
    given: Array,
    at: int,
    used: int,
    heads: Array,
    hashes: Array,
    counts: Array,
    offsets: Array,
    text: Array,
) -> tuple[int, int, int]:
    """Add words from a number on; return how far that went, the words known, and bytes needed."""
    for i in range(at, len(given)):
        first, last, hashed = ends[i], ends[i + 1], _START
        for k in range(first, last):
            hashed = (hashed ^ uint64(data[k])) * _PRIME
        hashed = _mixed(hashed)
        word, place = _find(data, first, last, hashed, heads, hashes, offsets, text)
        if word < 0:
            if offsets[used] + last - first > len(text):
                return i, used, last - first
            if used == len(hashes):
                return i, used, 0
            word = used
            _enter(data, first, last, hashed, place, used, heads, hashes, offsets, text)
            used += 1
        counts[word] += given[i]
    return len(given), used, 0


@njit(cache=True, nogil=True)
def _place(heads: Array, hashes: Array, used: int) -> None:
    """Write the numbers of words at the places that their hashes say."""
    mask = uint64(len(heads) - 1)
    for word in range(used):
        place = int64(hashes[word] & mask)
        while heads[place] != 0:
            place = int64(uint64(place + 1) & mask)
        heads[place] = word + 1


@njit(cache=True, nogil=True)
def _look_up(
    data: Array,
    longest: int,
    begun: int,
    heads: Array,
    hashes: Array,
    offsets: Array,
    text: Array,
    tokens: Array,
    ends: Array,
) -> int:
    at = count = sentences = 0
    while at < len(data):
        if data[at] == _NEWLINE and begun > 0:
            ends[sentences] = count
            sentences += 1
            begun = 0
        gap = _gap(data, at)
        if gap > 0:
            at += gap
            continue
        first, at, hashed = _next(data, at)
        tokens[count], _ = _find(data, first, at, hashed, heads, hashes, offsets, text)
        count += 1
        begun += 1
        if begun == longest:
            ends[sentences] = count
            sentences += 1
            begun = 0
    return sentences


@njit(cache=True, nogil=True)
def _prefixes(data: Array, offsets: Array, chosen: Array, prefixes: Array) -> None:
    """Write the first 16 bytes of words as two numbers that compare as the bytes do."""
    for i in range(len(chosen)):
        first, last = offsets[chosen[i]], offsets[chosen[i] + 1]
        for half in range(2):
            number = uint64(0)
            for k in range(first + 8 * half, first + 8 * half + 8):
                byte = uint64(data[k]) if k < last else uint64(0)
                number = (number << uint64(8)) | byte
            prefixes[half, i] = number


@njit(cache=True, nogil=True)
def _gather(data: Array, offsets: Array, chosen: Array, new: Array, text: Array) -> None:
    for i in range(len(chosen)):
        first = offsets[chosen[i]]
        for k in range(new[i + 1] - new[i]):
            text[new[i] + k] = data[first + k]
