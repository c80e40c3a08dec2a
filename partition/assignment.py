"""The methods that choose the owner of each node, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from penstock.errors import InputError
from penstock.limits import available_memory
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
