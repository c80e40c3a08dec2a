"""``penstock order``: show the order in which embedding partitions meet in the GPU's buffer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import options
from penstock.partition.order import METHODS, BufferState, PartitionOrder, order
from penstock.pipelines.display import Display, table_text

_HEADING = ("method", "capacity", "I/O", "bound", "volume", "hidden", "newest stays")
_COUNTS = ("io", "bound", "volume", "swaps", "hidden_share", "keeps_newest")


@options
class OrderOptions:
    """Options of ``penstock order``."""

    partitions: Annotated[int, Field(ge=1, le=512), Parameter(alias="-k")]
    """number of partitions the embedding table is cut into, at most 512"""
    method: Literal["prefetch", "beta", "cover", "legend"] = "prefetch"
    """prefetch: each swap hides behind training; beta: Marius; cover: GE2, for 4, 16, 64, ...;
    legend: the published prefetch order, to compare with"""
    capacity: Annotated[int, Field(ge=2, le=512)] | None = None
    """partitions the buffer holds (default: 4 for cover, else 3); only beta takes others"""


@dataclass(frozen=True)
class OrderReport:
    """One order, and those of the other methods for the same number of partitions."""

    order: PartitionOrder
    others: tuple[PartitionOrder, ...]
    verbose: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return counts and steps of the order, and counts of the others."""
        return {
            **_counts(self.order),
            "steps": [asdict(step) for step in self.order.steps],
            "others": [_counts(other) for other in self.others],
        }

    def text(self) -> str:
        """Return the table of counts and, if verbose, what happens in every buffer state."""
        table = [_HEADING, *(_cells(each) for each in (self.order, *self.others))]
        lines = [f"{self.order.partitions} partitions; volume in embedding tables moved"]
        lines.append(table_text(table, numbers=True))
        if self.verbose:
            lines += [f"\n{self.order.name}, state by state"]
            lines += [_line(i, step) for i, step in enumerate(self.order.steps)]
        return "\n".join(lines)


def partition_order(options: OrderOptions, *, verbose: bool = False) -> OrderReport:
    """Return the requested order and, for comparison, those of the other methods."""
    chosen = order(options.method, options.partitions, options.capacity)
    others = []
    for name in METHODS:
        if name != options.method:
            try:
                others.append(order(name, options.partitions))
            except UsageError:  # cover takes powers of four only
                continue
    return OrderReport(chosen, tuple(others), verbose)


def command(options: OrderOptions, *, output: Display = Display()) -> None:
    """Show in which order embedding partitions meet in the GPU's buffer."""
    output.show(partition_order(options, verbose=output.verbose))


def _counts(order: PartitionOrder) -> dict[str, Any]:
    about = {"partitions": order.partitions, "capacity": order.capacity}
    return {"method": order.name, **about, **{name: getattr(order, name) for name in _COUNTS}}


def _cells(order: PartitionOrder) -> tuple[str, ...]:
    return (
        order.name,
        str(order.capacity),
        str(order.io),
        str(order.bound),
        f"{order.volume:.2f}",
        f"{100 * order.hidden_share:.1f} %",
        "yes" if order.keeps_newest else "no",
    )


def _line(number: int, step: BufferState) -> str:
    swap = f"swap {_names(step.evict)} for {_names(step.load)}" if step.load else "end"
    before, during = _buckets(step.before), _buckets(step.during)
    return f"{number:5d}  {{{_names(step.buffer)}}}  train {before}; {swap}; meanwhile {during}"


def _names(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions))


def _buckets(buckets: tuple[tuple[int, int], ...]) -> str:
    return " ".join(f"({i},{j})" for i, j in buckets) or "nothing"
