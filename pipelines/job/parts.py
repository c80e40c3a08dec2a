"""The partition for a gang: the one in the graph's folder, or a new one."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.files import check_sums
from penstock.graph import Graph
from penstock.partition.manifest import AGAIN, PartitionManifest
from penstock.partition.part import partition_path, partitions
from penstock.pipelines.partition import make_partition


def partition_into(graph: Graph, k: int, *, quiet: bool) -> Path:
    """Return the partition into ``k`` parts; without one, one job makes it and others wait."""
    path = partition_path(graph, k)
    if not path.exists():
        if not quiet:
            others = " and ".join(found.name.removeprefix("k") for found in partitions(graph))
            there = f", only into {others}" if others else ""
            print(
                f"{graph.path} has no partition into {k} parts{there}: making one", file=sys.stderr
            )
        make_partition(graph, k, quiet=quiet)
    elif graph.verified:
        files = PartitionManifest.load(path).files.values()
        check_sums(path, files, remedy=AGAIN, quiet=quiet)
    return path
