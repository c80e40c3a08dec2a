"""Graphs that tests write: importable by tests, see pyproject.toml."""

from dataclasses import replace

from penstock import Graph
from penstock.writer import create_graph


def write_graph(path, csr, ids=None, *, features=None, shard_edges=1 << 24, nodes=None, **about):
    """Write a graph and return it opened.

    nodes  columns of its nodes: label, split
    about  what else its manifest says
    """
    with create_graph(path) as writer:
        writer.edges(csr, shard_edges=shard_edges)
        writer.nodes(ids, **nodes or {})
        if features is not None:
            writer.features(features)
        writer.manifest = replace(writer.manifest, **about)
    return Graph.open(path)
