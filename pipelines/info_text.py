"""How ``penstock info`` looks: one label a line, numbers aligned, no colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.moments import time_text
from penstock.paths import shown
from penstock.sizes import format_bytes

_WIDTH = 80  # of a line
_BAR = 36  # characters of the longest bar
_SHOWN = 8  # relations and classes before the rest is summed up


def info_text(found: dict[str, Any]) -> str:
    """Return the lines for what ``GraphInfo.to_dict`` holds."""
    lines = [shown(found["path"]), ""]
    rows = [*_counts(found), *_edge_data(found), *_node_data(found), *_storage(found)]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        # A table's line keeps its leading blanks; prose is wrapped beside its label.
        wrapped = [value] if value.startswith(" ") else textwrap.wrap(value, _WIDTH - width - 4)
        for line in wrapped or [""]:
            lines.append(f"  {label:<{width}}  {line}".rstrip())
            label = ""
    lines += _histogram("out-degree" if found["directed"] else "degree", found["degrees"])
    if found["in_degrees"] is not None:
        lines += _histogram("in-degree", found["in_degrees"])
    return "\n".join(lines)


Lines = Iterator[tuple[str, str]]


def _counts(found: dict[str, Any]) -> Lines:
    nodes = found["nodes"]
    yield "nodes", f"{nodes:,}"
    if found["directed"]:
        yield "edges", f"{found['edges']:,} directed"
    else:
        yield "edges", f"{found['edges']:,} undirected, stored as {found['arcs']:,} directed edges"
    if found["self_loops"]:
        yield "self loops", f"{found['self_loops']:,}"
    yield "isolated", f"{found['isolated']:,} nodes{_share(found['isolated'], nodes)}"
    largest = found["largest_component"]
    weak = "weakly connected, " if found["directed"] else ""
    yield (
        "components",
        f"{found['components']:,}, {weak}the largest of {largest:,} nodes{_share(largest, nodes)}",
    )
    if found["graphs"] is not None:
        yield "zoo", f"{found['graphs']:,} graphs, {nodes / max(found['graphs'], 1):.1f} nodes each"


def _edge_data(found: dict[str, Any]) -> Lines:
    if found["weights"] is not None:
        weights = found["weights"]
        mean = f"mean {weights['mean']:.6g}"
        yield "weights", f"{weights['min']:.6g} to {weights['max']:.6g}, {mean}"
    if found["times"] is not None:
        ends = (found["times"][end] for end in ("min", "max"))
        first, last = (time_text(end, timestamp=found["timestamps"]) for end in ends)
        yield "times", f"{first} to {last}"
    if found["relations"] is not None:
        yield "relations", f"{len(found['relations']):,}"
        yield from _most_frequent(found["relations"])
    for name, count in found["heldout"].items():
        yield f"{name} edges", f"{count:,} held out"


def _node_data(found: dict[str, Any]) -> Lines:
    features, labels = found["features"], found["labels"]
    if features is not None:
        zeros = f"{100 * features['sparsity']:.3g} % zeros"
        yield (
            "features",
            f"{features['width']:,} × {features['dtype']}, {features['kind']}, {zeros}",
        )
        if (names := features["names"]) is not None:
            more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            yield "", ", ".join(names[:_SHOWN]) + more
    if labels is not None:
        kinds = {"class": "one of", "multi": "any of", "value": "a value"}
        what = kinds[labels["kind"]]
        if labels["classes"] is not None:
            what += f" {len(labels['classes']):,} classes"
        labelled = labels["labelled"]
        share = _share(labelled, found["nodes"])
        yield "labels", f"{what}, {labelled:,} labelled nodes{share}"
    if any(found["splits"].values()):
        known = found["splits"] if labels is None else labels["splits"]
        yield (
            "split",
            ", ".join(
                f"{name} {count:,}"
                + (f" ({known[name]:,} labelled)" if known[name] != count else "")
                for name, count in found["splits"].items()
            ),
        )


def _storage(found: dict[str, Any]) -> Lines:
    sizes = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in found["bytes"].items())
    shards = f"{found['shards']:,} shard" + "s" * (found["shards"] != 1)
    yield "on disk", f"{format_bytes(sum(found['bytes'].values()))} in {shards}: {sizes}"
    for label, body in zip(
        ["partitions", *[""] * len(found["partitions"])], found["partitions"], strict=False
    ):
        yield label, _partition(body)
    if found["made"]:
        yield "made", _flat(found["made"])


def _partition(body: Mapping[str, Any]) -> str:
    if "unusable" in body:
        return f"{body['folder']}: {body['unusable']}"
    return (
        f"{body['folder']}: {body['made_by']}, {100 * body['cut_share']:.3g} % of edges cut, "
        f"replication {body['replication']:.3g}, load imbalance {body['load_imbalance']:.3g}"
    )


def _flat(made: Mapping[str, Any]) -> str:
    """Show scalars as ``key value``; what is nested is for ``--json``."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in made.items()
        if isinstance(value, str | int | float)
    )


def _most_frequent(counts: Mapping[str, int]) -> Lines:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    total = sum(counts.values())
    for name, count in ordered[:_SHOWN]:
        yield "", f"{count:>13,}{_share(count, total):>10}  {name}"
    rest = sum(count for _, count in ordered[_SHOWN:])
    if rest:
        yield "", f"{rest:>13,}{_share(rest, total):>10}  in {len(ordered) - _SHOWN:,} others"


def _histogram(title: str, degrees: Mapping[str, Any]) -> list[str]:
    quantiles = "  ".join(f"{name} {degrees[name]:,}" for name in ("min", "median", "p99", "max"))
    lines = ["", f"  {title}  {quantiles}  mean {degrees['mean']:.2f}"]
    names = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b, _ in degrees["histogram"]]
    most = max((count for *_, count in degrees["histogram"]), default=1)
    total = sum(count for *_, count in degrees["histogram"])
    width = max(map(len, names), default=0)
    for name, (*_, count) in zip(names, degrees["histogram"], strict=True):
        share = _share(count, total).strip(" ()")
        lines.append(f"  {name:>{width}}  {_bar(count / most):<{_BAR}}  {count:>13,}  {share:>7}")
    return lines


def _bar(share: float) -> str:
    """Return a bar in eighths of a character; what is not zero is seen."""
    eighths = round(share * _BAR * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _share(part: int, whole: int) -> str:
    if whole == 0:
        return ""
    share = 100 * part / whole
    # Never round "almost all" up to all, nor "a few" down to none.
    text = f"{share:.1f}"
    if 0 < part < whole:
        text = "<0.1" if share < 0.05 else ">99.9" if share >= 99.95 else text
    return f" ({text} %)"
