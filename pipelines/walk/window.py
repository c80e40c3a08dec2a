"""The window of ``--since`` and ``--until``: as keys of a graph's times, and what it left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.moments import LEAST, MOST, TimeType, moment, time_text
from penstock.pipelines.walk.options import WalkingOptions
from penstock.workers.walk.rows import time_keys

_PIECE = 1 << 20  # edges read together


def time_window(graph: Graph, options: WalkingOptions) -> tuple[int, int]:
    """Return the keys of the first and the last time that may be taken."""
    since = _key(options.since, graph, "--since")
    until = _key(options.until, graph, "--until")
    earliest = LEAST if since is None else since
    latest = MOST if until is None else until - 1
    if earliest > latest:
        raise UsageError("no time is both --since and --until", got=_asked(options))
    return earliest, latest


def what_window_left(graph: Graph, options: WalkingOptions, steps: int) -> str:
    """Say if no edge of the graph, or none of the starts, lies in the window, or can be taken.

    Edges are read until one lies in it, which the first ones show unless something is wrong.
    """
    if options.length == 1 or graph.num_edges == 0:
        return ""
    if options.since is options.until is None:
        if steps or not (options.weight or options.relations):
            return ""
        missed = f"--weight {options.weight} is above 0 for no edge of theirs"
        if options.relations:
            missed = f"none has an edge of the relation {options.relations[0]}"
        return f"no walk left its start: {missed}"
    earliest, latest = time_window(graph, options)
    low, high = [], []
    for times in _times(graph):
        keys = time_keys(times)
        if bool(((keys >= earliest) & (keys <= latest)).any()):
            missed = f"no walk left its start: no start has an edge in {_asked(options)}"
            return "" if steps else missed
        low.append(times.min())
        high.append(times.max())
    timestamp = graph.manifest.times == "timestamp"
    first, last = (time_text(t.item(), timestamp=timestamp) for t in (min(low), max(high)))
    return (
        f"no walk left its start: no edge lies in {_asked(options)}, the times of edges go from "
        f"{first} to {last}"
    )


def _key(text: str | None, graph: Graph, name: str) -> int | None:
    dtype, kind = graph.manifest.dtypes["times"], graph.manifest.times
    if kind is None and dtype == "int64":
        value = moment(text, None, name)
    else:
        value = moment(text, cast(TimeType, "timestamp" if kind == "timestamp" else dtype), name)
    if value is None or isinstance(value, int):
        return value
    return int(time_keys(np.array([value]))[0])


def _times(graph: Graph) -> Iterator[Array]:
    for number in range(graph.num_shards):
        times = graph.shard(number).times
        assert times is not None
        for first in range(0, len(times), _PIECE):
            yield times[first : first + _PIECE]


def _asked(options: WalkingOptions) -> str:
    asked = {"--since": options.since, "--until": options.until}
    return " ".join(f"{name} {text}" for name, text in asked.items() if text is not None)
