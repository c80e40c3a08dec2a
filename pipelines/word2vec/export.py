"""``penstock word2vec export``: vectors in another format, for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from penstock.errors import OutputExists, UsageError
from penstock.files import remove_temporaries
from penstock.options import ClientPath, options
from penstock.output_lock import output_lock
from penstock.paths import client_path, shown
from penstock.pipelines.output import CountsReport
from penstock.pipelines.vectors import Vectors
from penstock.sizes import format_bytes, need_disk

_SUFFIXES = {"npy": ".npy", "parquet": ".parquet"}
_TEXT_BYTES = 12  # of a number and a blank


@options
class ExportOptions:
    """Options of ``penstock word2vec export``."""

    format: Literal["text", "binary", "npy", "parquet"] = "text"
    """text and binary: those of word2vec, which gensim loads; npy: a matrix, and ids in a file next
    to it; parquet: columns id and vector"""
    blank: str | None = None
    """for text and binary: replaces each blank, tab and newline in an id, such as _; without it ids
    that have one are refused"""
    id_file: ClientPath | None = None
    """for an .npy file as input: the file of its ids [default: as in penstock similar]"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the file, if it is there"""

    def __post_init__(self) -> None:
        if self.blank is None:
            return
        if self.format not in ("text", "binary"):
            raise UsageError("--blank is for text and binary", got=f"--format {self.format}")
        if any(one.isspace() for one in self.blank):
            raise UsageError("--blank replaces blanks, and cannot have one", got=repr(self.blank))


@dataclass
class ExportReport(CountsReport):
    """What was written."""

    out: str
    format: str
    rows: int
    dimension: int
    bytes: int

    def text(self) -> str:
        """Return what a person wants to read."""
        return (
            f"{shown(self.out)}: {self.rows:,} vectors of {self.dimension}, {self.format}, "
            f"{format_bytes(self.bytes)}"
        )


def export(vectors: str | Path | Vectors, out: str | Path, **options: Any) -> ExportReport:
    """Write vectors in another format.

    Parameters
    ----------
    vectors
        Vectors, or where they are: see ``Vectors.open``.
    out
        File to write. With ``npy`` ids lie next to it, in a file that ends with ``.ids.parquet``.
    **options
        Fields of ``ExportOptions``: ``format``, ``blank``, ``id_file``, ``overwrite``.

    Returns
    -------
    ExportReport
        Counts; ``text()`` and ``to_dict()``.

    Raises
    ------
    InputError
        Ids that the format cannot hold.
    OutputExists
        ``out`` is taken, and ``overwrite`` is not set.

    Examples
    --------
    >>> export("vectors", "vectors.bin", format="binary")
    """
    given = ExportOptions(**options)
    opened = vectors if isinstance(vectors, Vectors) else Vectors.open(vectors, ids=given.id_file)
    return exported(opened, client_path(out), given)


def exported(opened: Vectors, path: Path, given: ExportOptions) -> ExportReport:
    """Write opened vectors as the options say."""
    from penstock.pipelines.vectors import tables, word2vec

    suffix = _SUFFIXES.get(given.format)
    if suffix is not None and path.suffix.lower() != suffix:
        raise UsageError(f"a file of format {given.format} ends with {suffix}", got=f"{path}")
    written = [path, tables.ids_of_export(path)] if given.format == "npy" else [path]
    for file in written:
        if file.is_dir() or (file.exists() and not given.overwrite):
            raise OutputExists(
                f"{file} {'is a directory' if file.is_dir() else 'exists'}",
                remedy="Name another output" + ("" if file.is_dir() else " or give --overwrite"),
            )
    if opened.about and path.parent.resolve() == opened.path.resolve():
        raise UsageError(
            f"{path} is among the files of the vectors that are exported",
            expected="a file outside the directory",
        )
    number = _TEXT_BYTES if given.format == "text" else 4
    size = len(opened) * opened.dimension * number + opened.ids.nbytes
    need_disk(path.parent, size, f"{len(opened):,} vectors of {opened.dimension}")
    with output_lock(path, command="penstock word2vec export"):
        for file in written:
            remove_temporaries(file.parent, file.name)
        if given.format == "npy":
            tables.write_npy(path, opened.ids, opened.values)
        elif given.format == "parquet":
            tables.write_parquet(path, opened.ids, opened.values)
        else:
            word2vec.write(path, opened.ids, opened.values, given.format, blank=given.blank)
    return ExportReport(str(path), given.format, len(opened), opened.dimension, path.stat().st_size)
