"""Where the time of an epoch goes: a table by rank, and a timeline of one epoch.

profile.json: {"ranks": [{"kinds": {kind: median seconds of an epoch}, "timeline": [[epoch, name,
kind, start, end, own seconds], ...]}, ...]}
Epochs count from 0 in this run. A span may be inside another one, whose own seconds are the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.pipelines.display import table_text

_WIDTH = 72  # characters of an epoch
_FINE = 8  # pieces of a character; the most frequent kind is drawn
_MARKS = {"compute": "█", "halo": "▒", "gradient": "░", "other": "·"}
_WORDS = {"halo": "halo exchange", "gradient": "gradient allreduce", "other": "other"}
_LONGEST = 8
_KINDS = ("compute", "halo", "gradient")

Spans = Sequence[Sequence[Any]]


def profile_text(profile: dict[str, Any]) -> str:
    """Return the table and the timeline."""
    return "\n".join(
        [*_table([rank["kinds"] for rank in profile["ranks"]]), "", *_timeline(profile)]
    )


def _table(ranks: list[dict[str, float]]) -> list[str]:
    mean = sum(times["compute"] for times in ranks) / len(ranks)
    heads = [("rank", ""), ("compute", "ms"), ("halo", "ms"), ("allreduce", "ms")]
    heads += [("imbalance", "")]
    rows = [
        [
            str(number),
            *(_ms(times[kind]) for kind in _KINDS),
            f"{times['compute'] / mean:.2f}" if mean else "",
        ]
        for number, times in enumerate(ranks)
    ]
    if len(ranks) == 1:
        heads, rows = heads[:2], [row[:2] for row in rows]
    lines = [[head[0] for head in heads], [head[1] for head in heads], *rows]
    return table_text(lines, indent="  ", numbers=True).splitlines()


def _timeline(profile: dict[str, Any]) -> list[str]:
    ranks = [_by_epoch(rank["timeline"]) for rank in profile["ranks"]]
    shared = set.intersection(
        *({n for n, spans in epochs.items() if _is_whole(spans)} for epochs in ranks)
    )
    if not shared:
        return ["  no timeline: no epoch is complete"]
    epoch = max(shared)
    spans = [epochs[epoch] for epochs in ranks]
    first = min(span[3] for one in spans for span in one)
    last = max(span[4] for one in spans for span in one)
    lines = [f"  timeline of one epoch, {_ms(last - first)} ms"]
    for number, one in enumerate(spans):
        lines.append(f"  {number:>4} {_bar(one, first, last)}")
    kinds = {span[2] for one in spans for span in one}
    legend = [f"{mark} {_WORDS.get(kind, kind)}" for kind, mark in _MARKS.items() if kind in kinds]
    return [*lines, "       " + "   ".join(legend), "", *_steps(spans)]


def _bar(spans: Spans, first: float, last: float) -> str:
    """Return a character for each piece of an epoch: the kind that took most of it."""
    pieces = _WIDTH * _FINE
    scale = pieces / max(last - first, 1e-9)
    kinds = [""] * pieces
    for _, _, kind, start, end, _ in sorted(spans, key=lambda span: (span[3], -span[4])):
        # Inner spans come later, and are painted over the outer ones.
        low, high = round((start - first) * scale), round((end - first) * scale)
        kinds[low:high] = [kind] * (high - low)
    drawn = []
    for at in range(0, pieces, _FINE):
        here = kinds[at : at + _FINE]
        drawn.append(_MARKS.get(max(set(here), key=here.count), " "))
    return "".join(drawn).rstrip()


def _steps(ranks: Sequence[Spans]) -> list[str]:
    """Return the longest operations in the epoch of the rank that computed longest, by name."""
    slowest = max(ranks, key=lambda spans: _own_seconds(spans).get("compute", 0.0))
    took = _own_seconds(slowest, by=1)
    whole = sum(took.values())
    best = sorted(took.items(), key=lambda item: -item[1])[:_LONGEST]
    width = max(len(name) for name, _ in best)
    return [
        f"  {name:<{width}}  {_ms(seconds):>8} ms  {100 * seconds / max(whole, 1e-12):3.0f} %"
        for name, seconds in best
    ]


def _by_epoch(timeline: Spans) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for span in timeline:
        found.setdefault(span[0], []).append(span)
    return found


def _is_whole(spans: Spans) -> bool:
    return any(span[1] == "update" for span in spans)


def _own_seconds(spans: Spans, by: int = 2) -> dict[str, float]:
    took: dict[str, float] = {}
    for span in spans:
        took[span[by]] = took.get(span[by], 0.0) + span[5]
    return took


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}" if seconds < 0.1 else f"{1e3 * seconds:.1f}"
