"""Values of nodes for PageRank, from tables: personalization, nstart, dangling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.errors import InputError, UsageError
from penstock.files import save_npy
from penstock.graph import Graph, load_npy
from penstock.output import Pieces
from penstock.pipelines.tables.read import read_columns

# The arguments of the kernel, by option.
_ARGUMENTS = {"personalization": "personal", "nstart": "start", "dangling": "dangling"}


def keep_values(graph: Graph, files: Mapping[str, Path], records: Pieces) -> None:
    """Read the tables, and keep the values of all nodes for the task."""
    for name, file in files.items():
        save_npy(records.folder, f"{name}.npy", read_values(graph, file))


def kept_values(files: Mapping[str, Path], records: Pieces) -> dict[str, Array]:
    """Return the values that were kept, by the argument of the kernel."""
    return {_ARGUMENTS[name]: load_npy(records.folder / f"{name}.npy") for name in files}


def read_values(graph: Graph, file: Path) -> Array:
    """Return a value for each node, in proportion to those of a table; (nodes,) float64, sum 1."""
    if not file.is_file():
        raise InputError(f"the table of values {file} does not exist")
    table = read_columns(str(file), ["node", "value"])
    if len(table) < 2:
        raise InputError(
            f"{file} lacks a column", expected="node and value", got=", ".join(table) or "nothing"
        )
    try:
        values = as_numpy(table["value"].cast(pa.float64()), np.nan)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{file} has a value that is not a number", got=str(error)[:200]
        ) from error
    bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if len(bad):
        raise _bad_row(file, bad[0], "a number that is not negative", values[bad[0]])
    try:
        nodes = graph.internal_ids(table["node"])
    except UsageError as error:
        raise InputError(f"the nodes of {file} are not those of {graph.path}: {error}") from error
    unknown = np.flatnonzero(nodes < 0)
    if len(unknown):
        name = table["node"][int(unknown[0])].as_py()
        raise _bad_row(file, unknown[0], f"a node of {graph.path}", name)
    found = np.zeros(graph.num_nodes)
    np.add.at(found, nodes, values)
    total = found.sum()
    if not 0 < total < np.inf:
        raise InputError(f"the values of {file} add up to {total:g}", expected="a number above 0")
    return np.asarray(found / total)


def _bad_row(file: Path, row: int, expected: str, got: object) -> InputError:
    return InputError(f"{file} has a bad row", expected=expected, got=f"{got} in row {row + 1}")
