"""``penstock word2vec export``: vectors in another format, for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from penstock.errors import OutputExists, UsageError
from penstock.files import remove_temporaries
from penstock.limits import available_memory
from penstock.options import ClientPath, options
from penstock.output import Output
from penstock.output_lock import output_lock
from penstock.paths import client_path, shown
from penstock.pipelines.display import CountsReport
from penstock.pipelines.job import Job, run
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.vectors import Vectors, tables, word2vec
from penstock.sizes import format_bytes, need_memory

Format = Literal["text", "binary", "npy", "parquet"]
_FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".vec": "text",
    ".bin": "binary",
    ".npy": "npy",
    ".parquet": "parquet",
}
# Bytes of a number in the file, and in memory while it is written, of so many rows at a time.
_TEXT, _NUMBER = 12, 4
_WRITTEN = {"text": (64, 1 << 14), "binary": (12, 1 << 14), "npy": (0, 0), "parquet": (8, 1 << 18)}


@options
class ExportOptions:
    """Options of ``penstock word2vec export``."""

    format: Format | None = None
    """text and binary: those of word2vec, which gensim loads; npy: a matrix, and ids in a file next
    to it; parquet: columns id and vector [default: by the name: .txt, .vec or none text, .bin
    binary, .npy, .parquet; .gz behind it compresses text and binary]"""
    blank: str | None = None
    """for text and binary: replaces each blank, tab and newline in an id, such as _; without it ids
    that have one are refused"""
    id_file: ClientPath | None = None
    """for an .npy file as input: the file of its ids [default: as in penstock similar]"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """replace the file, if it is there"""

    def __post_init__(self) -> None:
        if any(one.isspace() for one in self.blank or ""):
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


def export_vectors(
    vectors: str | Path | Vectors, out: str | Path, *, quiet: bool = True, **options: Any
) -> ExportReport:
    """Write vectors in another format, for other programs.

    Parameters
    ----------
    vectors
        Vectors, or where they are: see ``Vectors.open``.
    out
        File to write: its name says the format, as in ``format``. With ``npy`` ids lie next to it,
        in a file that ends with ``.ids.parquet``.
    quiet
        Of no effect, as no progress is printed.
    **options
        Fields of ``ExportOptions``: ``format``, ``blank``, ``id_file``, ``overwrite``: the options
        of ``penstock word2vec export``.

    Returns
    -------
    ExportReport
        Counts; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        No such vectors; options that contradict each other; ``out`` does not end as files of the
        format do, says no format, or is among those of the vectors.
    InputError
        Ids that the format cannot hold.
    OutputExists
        ``out`` is taken, and ``overwrite`` is not set.
    CapacityError
        It does not fit on the disk or in memory.

    Examples
    --------
    >>> export_vectors("vectors", "vectors.bin")
    """
    given = ExportOptions(**options)
    opened = Vectors.open(vectors, ids=given.id_file)
    return run(ExportJob(opened, client_path(out), given, quiet=quiet))


def _format_of(out: Path, given: Format | None) -> Format:
    """Return the format that is given, or that the name says; UsageError if they contradict."""
    packed = out.suffix.lower() == ".gz"
    suffix = (out.with_suffix("") if packed else out).suffix.lower()
    named = _FORMATS.get(suffix)
    found = given or named or (None if suffix else "text")
    if found is None:
        raise UsageError(
            f"the name of {out} says no format",
            expected=f"an end such as {', '.join(_FORMATS)}",
            remedy="Say which with --format",
        )
    table = found in ("npy", "parquet")  # which are read by their names, and not compressed
    if (table and packed) or (found != named and (table or named)):
        ends = " or ".join(each for each, kind in _FORMATS.items() if kind == found)
        raise UsageError(f"a file of format {found} ends with {ends}", got=f"{out}")
    return found


class ExportJob(Job[ExportReport]):
    """Writes a file, or two."""

    command = "penstock word2vec export"
    kind = "file"
    options: ExportOptions

    def __init__(self, vectors: Vectors, out: Path, options: ExportOptions, *, quiet: bool) -> None:
        super().__init__(out, options, quiet=quiet)
        self.vectors = vectors
        self.what = f"{len(vectors):,} vectors of {vectors.dimension}"
        self.format = _format_of(self.out, options.format)
        if options.blank is not None and self.format not in ("text", "binary"):
            raise UsageError("--blank is for text and binary", got=f"format {self.format}")
        self.files = [self.out]
        if self.format == "npy":
            self.files.append(tables.ids_of_export(self.out))
        number = _TEXT if self.format == "text" else _NUMBER
        self.bytes = len(vectors) * vectors.dimension * number + vectors.ids.nbytes
        number, rows = _WRITTEN[self.format]
        block = min(rows, len(vectors)) * vectors.dimension * number
        self.memory = block + 2 * vectors.ids.nbytes

    def check(self) -> None:
        """Refuse a name that is wrong, and a disk or memory that is too small."""
        if self.vectors.about and self.out.parent.resolve() == self.vectors.path.resolve():
            raise UsageError(
                f"{self.out} is among the files of the vectors that are exported",
                expected="a file outside the directory",
            )
        self.need_disk(self.bytes, self.what)
        least = self.format == "npy"
        remedy = "Free some memory" if least else "Export as .npy, or free some"
        need_memory(self.memory, f"writing {self.what}", remedy=remedy)

    def refuse_taken(self) -> None:
        """Raise where a file is there and is not to be replaced."""
        for file in self.files:
            if file.is_dir() or (file.exists() and not self.options.overwrite):
                kind = "is a directory" if file.is_dir() else "exists"
                more = "" if file.is_dir() else " or give --overwrite"
                raise OutputExists(f"{file} {kind}", remedy=f"Name another output{more}")

    @contextmanager
    def output(self) -> Iterator[Output]:
        """Keep other writers away from the files, each of which is replaced in one step."""
        folder = self.out.parent
        with output_lock(self.out, command=self.command):
            self.refuse_taken()
            for file in self.files:
                remove_temporaries(folder, file.name)
            yield Output.at(folder)

    def plan(self) -> Plan:
        """Say what would be written."""
        return Plan(
            f"{self.what}, {self.format}",
            (("export", f"the vectors of {self.vectors.path}, in this process"),),
            Need(self.memory, available_memory(), "available"),
            disk_need(self.out.parent, self.bytes),
        )

    def work(self, partial: Output) -> None:
        """Write the file, and that of the ids where they lie next to it."""
        ids, values, kind = self.vectors.ids, self.vectors.values, self.format
        if kind == "npy":
            tables.write_npy(self.out, ids, values)
        elif kind == "parquet":
            tables.write_parquet(self.out, ids, values)
        else:
            word2vec.write(self.out, ids, values, kind, blank=self.options.blank)

    def report(self, seconds: float) -> ExportReport:
        """Return what was written."""
        size = self.out.stat().st_size
        rows, dimension = len(self.vectors), self.vectors.dimension
        return ExportReport(str(self.out), self.format, rows, dimension, size)
