"""The owner of each node, and how it was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.limits import available_memory
from penstock.partition.balance import Balance
from penstock.sizes import plural

if TYPE_CHECKING:
    from penstock.graph import Graph

Method = Literal["auto", "metis", "components", "greedy", "random", "hash", "streaming"]
METHODS: tuple[Method, ...] = get_args(Method)


def memory_for(limit: int | None) -> int:
    """Return the memory that METIS and the refinement may take, if ``limit`` is None."""
    return available_memory() * 9 // 10 if limit is None else limit


def check_parts(graph: Graph, k: int) -> None:
    """Raise InputError if a graph has fewer nodes than ``k``: no part may be empty."""
    nodes = graph.num_nodes
    if k > nodes:
        raise InputError(
            f"{graph.path} cannot be cut into {plural(k, 'part')}",
            expected=f"at most {nodes:,} parts, the number of nodes" if nodes else None,
            got=f"-k {k:,}" if nodes else "a graph without nodes",
            remedy="Give a smaller -k" if nodes else None,
        )


@dataclass(frozen=True, eq=False)
class Assignment:
    """The part of each node, and how it was chosen.

    parts   (nodes,) int32, each in 0 .. k - 1, none of them empty
    made_by the way that made it: one, metis-kway, metis-recursive, components, greedy, random,
            hash, streaming
    steps   everything that was tried, in order: its phase, its outcome (taken, refused as out of
            bound, failed, skipped), and why
    balance of nodes and of load
    metis_seconds  that METIS itself took
    """

    parts: Array
    made_by: str
    steps: tuple[dict[str, str], ...]
    balance: Balance
    metis_seconds: float
