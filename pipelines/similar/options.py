"""The options of ``penstock similar``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.options import ClientPath, options


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
    """with --all: search an HNSW index (usearch) instead of comparing all pairs; the report says
    which share of the exact neighbours it finds"""
    id_file: ClientPath | None = None
    """for an .npy file: the file of its ids [default: the one of the same name with the ending
    .ids.parquet, .ids.txt or .ids.npy, else the numbers of the rows]"""
