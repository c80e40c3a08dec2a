"""The text and binary formats of word2vec, as gensim's KeyedVectors reads and writes them.

Both begin with a line of the number of words and of the dimension. Text has one line per word: the
word and its numbers, separated by blanks. In the binary format a word is followed by a blank and
its float32 values; a newline may separate words. Neither format can hold a blank in a word.
"""

from __future__ import annotations

import gzip
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError
from penstock.files import atomic
from penstock.options import shown
from penstock.pipelines.tables.sources import codec_of, file_size, open_stream
from penstock.sizes import need_memory

Kind = Literal["text", "binary"]

_ROWS = 1 << 14  # rows that are written at a time
_BLOCK = 1 << 24  # bytes that are read at a time
_LONGEST = 1 << 20  # the most bytes of a word or first line; a file with more is damaged
_NEVER_PRINTABLE = 4  # numbers of float32, whose bytes are printable once in 1e7 times
# Characters at which gensim or word2vec's own programs end or cut a word.
_SPACES = r"[ \t\n\v\f\r]"


# -- writing ------------------------------------------------------------------------------------


def write(
    path: Path, ids: pa.Array, values: Array, kind: Kind, *, blank: str | None = None
) -> None:
    """Write vectors so that gensim loads them; ids become text. A name in .gz compresses.

    blank  replaces each blank, tab and newline in an id; None: an id that has one is refused
    """
    words = _words(ids, blank, path)
    with (
        atomic(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, 0) if _packed(path) else nullcontext(raw) as file,
    ):
        file.write(f"{len(values)} {values.shape[1]}\n".encode())
        for start in range(0, len(values), _ROWS):
            some, rows = words[start : start + _ROWS], values[start : start + _ROWS]
            file.write(_text(some, rows) if kind == "text" else _binary(some, rows))


def _words(ids: pa.Array, blank: str | None, path: Path) -> pa.Array:
    """Return ids as the words of a file; InputError if the format cannot hold one."""
    try:
        words = ids.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"ids of type {ids.type} cannot be written as text") from error
    spaced = as_numpy(pc.match_substring_regex(words, _SPACES))
    if spaced.any() and blank is None:
        first = ids[int(np.argmax(spaced))].as_py()
        raise InputError(
            f"{int(spaced.sum()):,} ids cannot be written to {path}",
            expected="ids without blanks, tabs and newlines, which would end a word",
            got=repr(first),
            remedy="Replace them with --blank _, or export as parquet or npy",
        )
    if blank is not None:
        literal = blank.replace("\\", "\\\\")  # a backslash would refer to a group
        words = pc.replace_substring_regex(words, _SPACES, literal)
        if len(pc.unique(words)) != len(words):
            raise InputError(
                f"some ids become equal with {blank!r} for blanks",
                remedy="Give another --blank, or export as parquet or npy",
            )
    if as_numpy(pc.equal(pc.binary_length(words), 0)).any():
        raise InputError(
            f"an empty id cannot be written to {path}", remedy="Export as parquet or npy"
        )
    return words


def _text(words: pa.Array, rows: Array) -> bytes:
    """Return lines; numbers are the shortest texts of the same float32."""
    count, width = rows.shape
    numbers = as_arrow(rows.reshape(-1)).cast(pa.string())
    offsets = as_arrow(np.arange(0, count * width + 1, max(width, 1), dtype=np.int32))
    vectors = pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), " ")
    lines = pc.binary_join_element_wise(words.cast(pa.string()), vectors, " ")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _binary(words: pa.Array, rows: Array) -> bytes:
    values = np.ascontiguousarray(rows, "<f4")
    parts = []
    for word, row in zip(words.to_pylist(), values, strict=True):
        parts += [word.encode(), b" ", row.tobytes()]
    return b"".join(parts)


# -- reading ------------------------------------------------------------------------------------


def read(path: str) -> tuple[pa.Array, Array]:
    """Return words and values of a file in either format, also compressed."""
    with open_stream(path) as file:
        header = file.readline(_LONGEST)
        first = file.readline(_LONGEST)
    sizes = _sizes(header)
    if sizes is not None and sizes[0] and not _is_text(path, first, *sizes):
        return _read_binary(path, *sizes)
    return _read_text(path, header, sizes)


def _packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _sizes(header: bytes) -> tuple[int, int] | None:
    """Return words and dimension of a first line; None: the line of a word, as in GloVe's files."""
    parts = header.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _is_text(path: str, line: bytes, rows: int, width: int) -> bool:
    """Return whether a line is a word with its numbers, and not the start of a binary file.

    A line of printable words, one of which is not a number, is still text if the file is too short
    for binary, or if this many binary numbers could not all consist of printable bytes.
    """
    parts = line.split()
    if len(parts) != width + 1:
        return False
    if all(_is_number(part) for part in parts[1:]):
        return True
    short = codec_of(path) is None and file_size(path) < rows * (4 * width + 2)
    try:
        printable = line.rstrip().decode().replace("\t", " ").isprintable()
    except UnicodeDecodeError:
        return False
    return printable and (short or width >= _NEVER_PRINTABLE)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_binary(path: str, rows: int, width: int) -> tuple[pa.Array, Array]:
    step = 4 * width
    size, packed = file_size(path), codec_of(path) is not None
    if not packed and size < rows * (step + 2):
        raise _short(path, rows, size // (step + 2))
    need_memory(rows * (step + 60), f"the vectors of {path}", remedy="Read them in Parquet or .npy")
    values = np.empty((rows, width), np.float32)
    words: list[bytes] = []
    data, at, ended = b"", 0, False
    with open_stream(path) as file:
        file.readline()
        for row in range(rows):
            if not ended and len(data) - at < _LONGEST + step:
                more = file.read(_BLOCK + step)
                data, at, ended = data[at:] + more, 0, not more
            blank = data.find(b" ", at, at + _LONGEST)
            if blank < 0 or blank + 1 + step > len(data):
                raise _short(path, rows, row)
            words.append(data[at:blank].lstrip(b"\n"))
            at = blank + 1 + step
            values[row] = np.frombuffer(data, "<f4", width, blank + 1)
    try:
        return pa.array(words, pa.binary()).cast(pa.string()), values
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} has words that are not UTF-8", got=str(error)) from error


def _read_text(path: str, header: bytes, sizes: tuple[int, int] | None) -> tuple[pa.Array, Array]:
    rows, width = sizes or (-1, len(header.split()) - 1)
    if width < 1:
        raise InputError(
            f"{path} has no vectors",
            expected="word2vec's text or binary format",
            got=f"a first line {header[:60]!r}",
        )
    with open_stream(path) as file:
        if sizes is not None:
            file.readline()
        first = file.readline()
    # word2vec's own program ends lines with a blank.
    trailing = first.rstrip(b"\r\n").endswith(b" ")
    names = [f"v{column}" for column in range(width)]
    every = ["word", *names, *(["end"] if trailing else [])]
    kinds = dict.fromkeys(names, pa.float32()) | {"word": pa.string(), "end": pa.string()}
    need_memory(
        (max(rows, 0) or file_size(path) // (4 * width)) * 8 * width,
        f"the vectors of {path}",
        remedy="Read them in Parquet or .npy",
    )
    try:
        with open_stream(path) as file:
            table = csv.read_csv(
                pa.PythonFile(file, mode="r"),
                csv.ReadOptions(column_names=every, skip_rows=int(sizes is not None)),
                csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False),
                csv.ConvertOptions(column_types=kinds, null_values=[]),
            )
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path} is not in word2vec's text format",
            expected=f"lines of a word and {width} numbers",
            got=_first_bad_line(path, sizes is not None, width) or str(error),
        ) from error
    if sizes is not None and table.num_rows != rows:
        raise _short(path, rows, table.num_rows)
    values = np.empty((table.num_rows, width), np.float32)
    for column, name in enumerate(names):
        values[:, column] = as_numpy(table.column(name))
    words = table.column("word")
    return pa.concat_arrays([*words.chunks, pa.array([], pa.string())]), values


def _first_bad_line(path: str, has_header: bool, width: int) -> str | None:
    """Return the fault of the first line that is not a word and ``width`` numbers."""
    with open_stream(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or (number == 1 and has_header):
                continue
            parts = line.rstrip(b"\r\n").removesuffix(b" ").split(b" ")
            for part in parts[1:]:
                if not _is_number(part):
                    text, word = (shown(each.decode(errors="replace")) for each in (part, parts[0]))
                    return f"{text} in line {number:,}, that of {word}"
            if len(parts) != width + 1:
                return f"{len(parts) - 1} numbers in line {number:,}"
    return None


def _short(path: str, rows: int, found: int) -> InputError:
    return InputError(
        f"{path} is damaged or cut short",
        expected=f"{rows:,} vectors, as its first line says",
        got=f"{found:,}",
        remedy="Copy the file again",
    )
