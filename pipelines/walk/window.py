"""The window of ``--since`` and ``--until``, as keys of a graph's times."""

from __future__ import annotations

from typing import cast

import numpy as np

from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.moments import LEAST, MOST, TimeType, moment
from penstock.pipelines.walk.options import WalkingOptions
from penstock.workers.walk.rows import time_keys


def time_window(graph: Graph, options: WalkingOptions) -> tuple[int, int]:
    """Return the keys of the first and the last permitted time."""
    since = _key(options.since, graph, "--since")
    until = _key(options.until, graph, "--until")
    earliest = LEAST if since is None else since
    latest = MOST if until is None else until - 1
    if earliest > latest:
        asked = {"--since": options.since, "--until": options.until}
        got = " ".join(f"{name} {text}" for name, text in asked.items() if text is not None)
        raise UsageError("no time is between --since and --until", got=got)
    return earliest, latest


def _key(text: str | None, graph: Graph, name: str) -> int | None:
    dtype, kind = graph.manifest.dtypes["times"], graph.manifest.times
    if kind != "timestamp":
        kind = None if kind is None and dtype == "int64" else dtype
    value = moment(text, cast(TimeType | None, kind), name)
    if value is None or isinstance(value, int):
        return value
    return int(time_keys(np.array([value]))[0])
