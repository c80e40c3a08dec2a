"""The largest batch: all edges of a bucket, or all that a rank trains in a round."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.partition.tournament import tournament


def edges_of_round(edges: int, ranks: int) -> int:
    """Return about how many edges each of several ranks trains in a round.

    If they fit in one batch, all blocks meet once per epoch: see laps_in_memory.
    """
    return max(1, edges // (ranks * len(tournament(ranks))))


def too_large_batch(
    batch: int | None,
    most: int,
    *,
    partitions: int,
    ranks: int,
    partitions_given: bool = True,
) -> UsageError | None:
    """Return the error of a batch of more than ``most`` edges, or None.

    partitions        on the disk; 1: everything is in memory
    partitions_given  whether the user chose their number
    """
    if batch is None or batch <= most:
        return None
    what, remedy = "all edges of the graph", ""
    if partitions > 1:
        what = f"the largest bucket of edges, between two of {partitions:,} partitions"
        remedy = ", or fewer --partitions" if partitions_given else ", or workers of more memory"
    elif ranks > 1:
        what = f"what each of {ranks} ranks trains in a round"
        remedy = ", or fewer --parts"
    return UsageError(
        f"a batch is larger than {what}",
        expected=f"--batch {most:,} or less",
        got=f"--batch {batch:,}",
        remedy=f"Take a smaller batch{remedy}",
    )
