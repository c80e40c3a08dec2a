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
    """how many neighbours of each id; the id itself is none of them"""
    metric: Literal["cosine", "dot"] = "cosine"
    """by what neighbours are near: the cosine of the angle, or the dot product"""
    id_file: ClientPath | None = None
    """of an .npy file: the file of its ids [default: one of that name which ends with
    .ids.parquet, .ids.txt or .ids.npy, or else the numbers of the rows]"""
    resume: Annotated[bool, Parameter(negative="")] = False
    """with --all: go on where an interrupted run of the same command stopped"""
    overwrite: Annotated[bool, Parameter(negative="")] = False
    """with --all: replace the output if it holds neighbours already"""
