"""The options of ``penstock similar``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.options import ClientPath, Rules, options, refuse_ignored

_IGNORED: Rules = (
    (("index",), "without --approximate", lambda o: not o.approximate),
    (("base", "tolerance"), "with --approximate: name --index", lambda o: o.approximate),
    (
        ("base", "tolerance"),
        "with --candidates",
        lambda o: o.candidates is not None,
    ),
)


@options
class SimilarOptions:
    """Options of ``penstock similar``."""

    k: Annotated[int, Field(ge=1), Parameter(alias="-k")] = 10
    """neighbours per id, without the id itself"""
    metric: Literal["cosine", "dot"] = "cosine"
    """similarity of vectors: the cosine of the angle between them, or their dot product"""
    candidates: ClientPath | None = None
    """a file of ids (one per line, or the first column of Parquet or Arrow IPC) that may be
    neighbours [default: all ids]"""
    approximate: Annotated[bool, Parameter(negative="")] = False
    """with --all: search an HNSW index (usearch) instead of comparing all pairs, and keep it in the
    output; the report says which share of the exact neighbours it finds"""
    index: ClientPath | None = None
    """with --approximate: an earlier output, whose index is used again; vectors that are new or
    differ are added, and those that are gone removed [default: build one]"""
    base: ClientPath | None = None
    """with --all: an earlier output of the same metric and k; rows are searched again only if their
    vector or one of their neighbours' has moved, or is gone"""
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    """with --all: vectors count as moved if they differ by more than this share of their length;
    above 0 the output keeps them, for the next --base [default: 0, with exact results]"""
    id_file: ClientPath | None = None
    """for an .npy file: the file of its ids [default: the one of the same name with the ending
    .ids.parquet, .ids.txt or .ids.npy, else the numbers of the rows]"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED)
