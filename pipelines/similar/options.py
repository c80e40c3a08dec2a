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
    id_file: ClientPath | None = None
    """for an .npy file: the file of its ids [default: the one of the same name with the ending
    .ids.parquet, .ids.txt or .ids.npy, else the numbers of the rows]"""
