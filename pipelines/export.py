"""``penstock vectors export``: vectors in another format, for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.errors import UsageError
from penstock.options import ClientPath, options
from penstock.paths import shown
from penstock.pipelines.display import JobReport
from penstock.pipelines.help_page import group
from penstock.pipelines.job.declare import VECTORS, Context, job
from penstock.pipelines.job.plan import Need
from penstock.sizes import format_bytes, too_large

if TYPE_CHECKING:
    from penstock.output import FileOutput
    from penstock.pipelines.vectors import Vectors

Format = Literal["text", "binary", "npy", "parquet", "usearch", "faiss"]


class _Form(NamedTuple):
    """One format.

    suffixes  that name it
    disk      bytes per number in the file
    memory    bytes per number of rows that are written together, of which there are ``rows``
    numbered  whether it holds the numbers of rows, and the ids are in a file next to it
    """

    suffixes: tuple[str, ...]
    disk: int = 4
    memory: int = 0
    rows: int = 1 << 62
    numbered: bool = False


_FORMS: dict[Format, _Form] = {
    "text": _Form((".txt", ".vec"), 12, 64, 1 << 14),
    "binary": _Form((".bin",), 4, 12, 1 << 14),
    "npy": _Form((".npy",), numbered=True),
    "parquet": _Form((".parquet",), 4, 8, 1 << 18),
    "usearch": _Form((".usearch",), 4, 4, numbered=True),
    "faiss": _Form((".faiss",), 4, 4, numbered=True),
}
_WORDS, _INDEXES = ("text", "binary"), ("usearch", "faiss")


@options
class ExportOptions:
    """Options of ``penstock vectors export``."""

    format: Format | None = None
    """text and binary: word2vec's formats, which gensim loads; npy: a matrix; usearch and faiss: an
    HNSW index; next to these three a file of ids; parquet: columns id and vector [default: by the
    suffix: .txt, .vec or none: text, .bin: binary, .npy, .parquet, .usearch, .faiss; .gz after it
    compresses text and binary]"""
    metric: Literal["cosine", "dot"] = "cosine"
    """for usearch and faiss: cosine, which makes vectors of length one, or the dot product"""
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
    "vectors export",
    reads=replace(VECTORS, searched=lambda vectors: [vectors.path]),
    writes="file",
    clustered=False,
)
def export_vectors(
    context: Context, vectors: Vectors, out: FileOutput, options: ExportOptions
) -> ExportReport:
    """Write vectors in another format: word2vec's text or binary, .npy, Parquet, usearch, faiss.

    Parameters
    ----------
    vectors
        vectors: a directory or a file
    out
        the file to write; npy, usearch and faiss hold numbers of rows, and the ids are written to a
        file that ends with .ids.parquet

    Examples
    --------
    >>> export_vectors("vectors", "vectors.bin")
    """
    import pyarrow as pa

    from penstock.files import atomic, save_npy
    from penstock.limits import available_memory
    from penstock.pipelines.similar.approximate import Index
    from penstock.pipelines.vectors import indexes, word2vec
    from penstock.vector_parts import save_table, vector_lists

    kind = _format_of(out.named, options.format)
    form = _FORMS[kind]
    if options.blank is not None and kind not in _WORDS:
        raise UsageError("--blank is for text and binary", got=f"format {kind}")
    if options.metric != "cosine" and kind not in _INDEXES:
        raise UsageError("--metric is for usearch and faiss", got=f"format {kind}")
    beside = out.path.with_name(f"{out.path.with_suffix('').name}.ids.parquet")
    if form.numbered:
        out.goes_with(beside)
    ids, values, rows, dimension = vectors.ids, vectors.values, len(vectors), vectors.dimension
    links = indexes.index_bytes(rows, 0, cosine=True) if kind in _INDEXES else 0
    memory = min(form.rows, rows) * dimension * form.memory + 2 * ids.nbytes + links
    context.plan(
        what := f"{rows:,} vectors of {dimension}, {kind}",
        steps=(("export", f"the vectors of {vectors.path}, in this process"),),
        memory=Need(memory, available_memory(), "available"),
        disk=rows * dimension * form.disk + ids.nbytes + links,
        problem=too_large(memory, what, remedy="Free some memory, or export as .npy"),
    )
    file, cosine = out.result / out.path.name, options.metric == "cosine"
    if kind in _INDEXES:
        vectors.check_finite()
    if kind == "parquet":
        save_table(out.result, file.name, pa.table({"id": ids, "vector": vector_lists(values)}))
    elif kind == "npy":
        save_npy(out.result, file.name, values)
    elif kind == "usearch":
        index, _ = Index.built(values, None, cosine=cosine, quiet=context.quiet)
        with atomic(file) as temporary:
            index.found.save(str(temporary))
    elif kind == "faiss":
        indexes.write_faiss(file, values, cosine=cosine)
    else:
        word2vec.write(file, ids, values, kind, blank=options.blank)
    if form.numbered:
        save_table(out.result, beside.name, pa.table({"id": ids}))
    return ExportReport(str(out.named), kind, rows, dimension, file.stat().st_size)


def _format_of(out: Path, given: Format | None) -> Format:
    """Return the given format, or the one of the name; UsageError if they contradict."""
    packed = out.suffix.lower() == ".gz"
    suffix = (out.with_suffix("") if packed else out).suffix.lower()
    named = next((kind for kind, form in _FORMS.items() if suffix in form.suffixes), None)
    found = given or named or (None if suffix else "text")
    if found is None:
        known = ", ".join(each for form in _FORMS.values() for each in form.suffixes)
        raise UsageError(
            f"the name of {out} does not decide the format",
            expected=f"a suffix such as {known}",
            remedy="Choose one with --format",
        )
    other = found not in _WORDS  # read by their suffix, and not compressed
    if (other and packed) or (found != named and (other or named)):
        ends = " or ".join(_FORMS[found].suffixes)
        raise UsageError(f"a file of format {found} ends with {ends}", got=f"{out}")
    return found


app = group(export_vectors)
