"""The files of a TU data set: which there are, and their numbers, row by row."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.tables.sources import (
    codec_of,
    file_size,
    find_files,
    is_folder,
    open_stream,
)
from penstock.sizes import need_memory

_KINDS = (
    "A",
    "graph_indicator",
    "graph_labels",
    "graph_attributes",
    "node_labels",
    "node_attributes",
    "edge_labels",
)
_CODECS = ("", ".gz", ".zst", ".bz2")
# Text expands about tenfold; a byte of it is about a tenth of an edge, which needs 120 bytes.
_UNPACKED, _NEEDED = 10, 12


def find_tu_files(folder: str | Path) -> dict[str, str]:
    """Return the files of the one data set in ``folder`` by what they hold, checked for size."""
    if not is_folder(str(folder)):
        raise InputError(f"{folder} is not a folder", expected="a folder with NAME_A.txt")
    by_name = {path.rsplit("/", 1)[-1]: path for path in find_files([str(folder)])}
    names = sorted(
        {
            name[: -len(f"_A.txt{codec}")]
            for name in by_name
            for codec in _CODECS
            if name.endswith(f"_A.txt{codec}")
        }
    )
    if len(names) != 1:
        raise InputError(
            f"{folder} is not one TU data set",
            expected="one file NAME_A.txt (or .gz)",
            got=", ".join(f"{name}_A.txt" for name in names) or "none",
        )
    found = {}
    for kind in _KINDS:
        for codec in _CODECS:
            path = by_name.get(f"{names[0]}_{kind}.txt{codec}")
            if path is not None:
                found[kind] = path
    if "graph_indicator" not in found:
        raise InputError(
            f"{folder} has no {names[0]}_graph_indicator.txt",
            expected="a file with the graph of each node",
            remedy="Get the whole data set",
        )
    size = sum(file_size(path) * (_UNPACKED if codec_of(path) else 1) for path in found.values())
    need_memory(
        size * _NEEDED,
        f"the TU data set {names[0]}",
        remedy="Write its edges as a table of graph_id, source and target: a zoo of such tables "
        "is read out of core",
    )
    return found


def read_numbers(
    path: str, *, integers: bool, columns: int | None = None, may_miss: bool | None = None
) -> Array:
    """Return all rows of a file of comma-separated numbers: (rows, columns) int64 or float64.

    columns   how many each row must have; None: as many as the first row
    may_miss  of features: whether some may be missing, which are NaN then; None: no features
    A value that is not such a number raises InputError with file and row.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    with open_stream(path) as stream:
        text: bytes = b"".join(iter(lambda: stream.read(1 << 24), b"")).rstrip()
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text:
        return np.empty((0, columns or 0), np.int64 if integers else np.float64)
    if columns is None:
        columns = text.partition(b"\n")[0].count(b",") + 1
    names = [str(i) for i in range(columns)]
    kind = pa.int64() if integers else pa.float64()
    try:
        table = pc.read_csv(
            io.BytesIO(text),
            read_options=pc.ReadOptions(column_names=names, block_size=1 << 24),
            # Blank lines count as rows: the files are matched by row number.
            parse_options=pc.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(names, kind), null_values=["", " "] if may_miss else []
            ),
        )
    except pa.ArrowInvalid as error:
        bad = _first_bad_row(path, text, columns, integers, may_miss)
        raise bad or InputError(f"{path} cannot be read", got=str(error)) from None
    numbers = np.empty((len(table), columns), np.int64 if integers else np.float64)
    for i in range(columns):
        numbers[:, i] = table.column(i).to_numpy()
    wrong = ~np.isfinite(numbers) & ~(np.isnan(numbers) & bool(may_miss))
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        missing = may_miss is False and bool(np.isnan(numbers[row]).any())
        raise _bad_row(path, row, "finite numbers", text.split(b"\n")[row], missing=missing)
    return numbers


def read_labels(path: str) -> Array:
    """Return one number a row: (rows,) int64 if all are integers, else float64."""
    try:
        return read_numbers(path, integers=True, columns=1)[:, 0]
    except InputError:
        return read_numbers(path, integers=False, columns=1)[:, 0]


def need_rows(path: str, numbers: Array, rows: int, what: str) -> None:
    """Raise InputError unless ``numbers``, read from ``path``, has ``rows`` rows."""
    if len(numbers) != rows:
        raise InputError(
            f"{path} has the wrong number of rows",
            expected=f"{rows}, one for each {what}",
            got=f"{len(numbers)}; row {min(len(numbers), rows) + 1} is the first without its "
            "counterpart",
        )


def _first_bad_row(
    path: str, text: bytes, columns: int, integers: bool, may_miss: bool | None
) -> InputError | None:
    parse = int if integers else float
    for row, line in enumerate(text.split(b"\n")):
        fields = line.split(b",")
        empty = any(not field.strip() for field in fields)
        if may_miss:
            fields = [field if field.strip() else b"nan" for field in fields]
        try:
            good = len(fields) == columns and all(
                -(2**63) <= parse(field) < 2**63 or not integers for field in fields
            )
        except ValueError:
            good = False
        if not good:
            kind = "integer" if integers else "number"
            some = f"one {kind}" if columns == 1 else f"{columns} {kind}s with commas between"
            missing = may_miss is False and len(fields) == columns and empty
            return _bad_row(path, row, some, line, missing=missing)
    return None


def _bad_row(
    path: str, row: int, expected: str, line: bytes, *, missing: bool = False
) -> InputError:
    got = line.decode("utf-8", "replace").strip()
    return InputError(
        f"{path}, row {row + 1}, cannot be used",
        expected=expected,
        got=repr(got if len(got) <= 60 else got[:57] + "..."),
        remedy="Correct the row, or fill it with --missing-features zero or mean"
        if missing
        else None,
    )
