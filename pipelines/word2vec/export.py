"""``penstock word2vec export``: vectors in another format, for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import UsageError
from penstock.options import ClientPath, options
from penstock.paths import shown
from penstock.pipelines.display import JobReport
from penstock.pipelines.job.declare import VECTORS, Context, job
from penstock.pipelines.job.plan import Need
from penstock.sizes import format_bytes, too_large

if TYPE_CHECKING:
    from penstock.output import FileOutput
    from penstock.pipelines.vectors import Vectors

Format = Literal["text", "binary", "npy", "parquet"]
_FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".vec": "text",
    ".bin": "binary",
    ".npy": "npy",
    ".parquet": "parquet",
}
# Bytes per number in the file; bytes per number in memory, and the rows written at a time.
_TEXT, _NUMBER = 12, 4
_WRITTEN = {"text": (64, 1 << 14), "binary": (12, 1 << 14), "npy": (0, 0), "parquet": (8, 1 << 18)}


@options
class ExportOptions:
    """Options of ``penstock word2vec export``."""

    format: Format | None = None
    """text and binary: word2vec's formats, which gensim loads; npy: a matrix, and a file of ids
    next to it; parquet: columns id and vector [default: by the suffix: .txt, .vec or none: text,
    .bin: binary, .npy, .parquet; .gz after it compresses text and binary]"""
    blank: str | None = None
    """for text and binary: a character such as _ that replaces each blank, tab and newline in an
    id; without it such ids are refused"""
    id_file: ClientPath | None = None
    """for an .npy file as input: the file of its ids [default: as in penstock similar]"""

    def __post_init__(self) -> None:
        if any(one.isspace() for one in self.blank or ""):
            raise UsageError(
                "--blank replaces blanks, and cannot contain one", got=repr(self.blank)
            )


@dataclass
class ExportReport(JobReport):
    """The written file."""

    out: str
    format: str
    rows: int
    dimension: int
    bytes: int

    def lines(self) -> Iterable[str]:
        """Return the report as text."""
        yield (
            f"{shown(self.out)}: {self.rows:,} vectors of {self.dimension}, {self.format}, "
            f"{format_bytes(self.bytes)}"
        )


@job(
    "word2vec export",
    reads=replace(VECTORS, searched=lambda vectors: [vectors.path]),
    writes="file",
    clustered=False,
)
def export_vectors(
    context: Context, vectors: Vectors, out: FileOutput, options: ExportOptions
) -> ExportReport:
    """Write vectors in another format: word2vec's text or binary, .npy, Parquet.

    Parameters
    ----------
    vectors
        vectors: a directory or a file
    out
        the file to write; npy also writes the ids, into a file that ends with .ids.parquet

    Examples
    --------
    >>> export_vectors("vectors", "vectors.bin")
    """
    from penstock.limits import available_memory
    from penstock.pipelines.vectors import tables, word2vec

    kind = _format_of(out.named, options.format)
    if options.blank is not None and kind not in ("text", "binary"):
        raise UsageError("--blank is for text and binary", got=f"format {kind}")
    if kind == "npy":
        out.goes_with(tables.ids_of_export(out.path))
    ids, values, rows, dimension = vectors.ids, vectors.values, len(vectors), vectors.dimension
    number, at_once = _WRITTEN[kind]
    memory = min(at_once, rows) * dimension * number + 2 * ids.nbytes
    context.plan(
        what := f"{rows:,} vectors of {dimension}, {kind}",
        steps=(("export", f"the vectors of {vectors.path}, in this process"),),
        memory=Need(memory, available_memory(), "available"),
        disk=rows * dimension * (_TEXT if kind == "text" else _NUMBER) + ids.nbytes,
        problem=too_large(memory, what, remedy="Free some memory, or export as .npy"),
    )
    file = out.result / out.path.name
    if kind == "npy":
        tables.write_npy(file, ids, values)
    elif kind == "parquet":
        tables.write_parquet(file, ids, values)
    else:
        word2vec.write(file, ids, values, kind, blank=options.blank)
    return ExportReport(str(out.named), kind, rows, dimension, file.stat().st_size)


def _format_of(out: Path, given: Format | None) -> Format:
    """Return the given format, or the one of the name; UsageError if they contradict."""
    packed = out.suffix.lower() == ".gz"
    suffix = (out.with_suffix("") if packed else out).suffix.lower()
    named = _FORMATS.get(suffix)
    found = given or named or (None if suffix else "text")
    if found is None:
        raise UsageError(
            f"the name of {out} does not decide the format",
            expected=f"a suffix such as {', '.join(_FORMATS)}",
            remedy="Choose one with --format",
        )
    table = found in ("npy", "parquet")  # read by their suffix, and not compressed
    if (table and packed) or (found != named and (table or named)):
        ends = " or ".join(each for each, kind in _FORMATS.items() if kind == found)
        raise UsageError(f"a file of format {found} ends with {ends}", got=f"{out}")
    return found
