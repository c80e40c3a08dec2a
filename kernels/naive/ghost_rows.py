"""Rows that other ranks need, packed, and received rows of ghosts added, in plain NumPy."""

from __future__ import annotations

from typing import Any

from penstock.arrays import Array


def take_rows(x: Array, rows: Array, out: Array) -> None:
    """Copy the rows of ``x`` that ``rows`` names to ``out``."""
    out[...] = x[rows]


def add_rows(x: Array, rows: Any, came: Array) -> None:
    """Add ``came`` to rows of ``x``: a slice, or distinct ``rows``."""
    x[rows] += came
