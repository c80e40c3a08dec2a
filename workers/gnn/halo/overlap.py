"""Which share of the communication is hidden: measured when asked, in epochs made for that.

    found = measure_overlap(comm, network, epoch, restore, rounds=7)

After a training run, epochs of three kinds alternate, all by the same transport:

usual           as in a training run
left out        nothing is exchanged: the same numbers are computed on rows and sums that are stale
not overlapped  each exchange begins after a barrier, whose time is not counted, and is waited for
                before anything else is computed

    exposed = usual - left out          what an epoch is longer because ranks communicate
    whole   = not overlapped - left out what there is to hide
    hidden  = 1 - exposed / whole, that is a round's exposed / the median whole of all rounds

Times are wall times, those of the rank that takes longest. So a rank that has more to compute is in
all three, and waiting for it counts as communication nowhere; where another rank is the slower one
in another part of an epoch, the wait for it is in the usual epochs only, and lowers the hidden
share. Packing rows, adding what came, and looking after messages are communication, which the
epochs that leave it out do not do.

On GPUs the barrier is in the streams, a sum over all ranks between two events: a host that waited
for the GPU in every exchange would launch late what comes next, and that would count as
communication.

What is computed on stale rows is of no use, so whatever an epoch changes is put back after each:
``restore`` does that, outside of what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.arrays import Array
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.plan.spec import WIDEST

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

Kind = Literal["usual", "left_out", "not_overlapped"]
KINDS: tuple[Kind, ...] = ("usual", "left_out", "not_overlapped")


def measure_overlap(
    comm: AnyCommunicator,
    network: Network,
    epoch: Callable[[], object],
    restore: Callable[[], None],
    rounds: int,
) -> dict[str, Any]:
    """Return what was found, as ``summary`` says, with the transport; every rank calls it.

    epoch    trains one epoch: forward, loss, back, sums over ranks, update
    restore  puts back what that changed
    """
    timer = _Timer(comm, network)
    seconds = np.zeros((rounds, len(KINDS)))
    settle, network.clock.settle = network.clock.settle, None  # which would wait for every kernel
    try:
        # The first round takes memory and compiles what no epoch before did. It begins as usual:
        # what is precomputed must be made of rows that did travel.
        for number in range(-1, rounds):
            for turn in range(len(KINDS)):
                which = (turn + max(number, 0)) % len(KINDS)
                taken = timer.time(KINDS[which], epoch)
                restore()
                if number >= 0:
                    seconds[number, which] = taken
    finally:
        network.exchange(overlap=True)
        network.clock.settle = settle
    comm.allreduce(seconds, "max")
    like = network.context.like
    ways = {way for each in comm.allgather(network.halo.transports(like)) for way in each}
    by = {"rows": " and ".join(sorted(ways)), "sums": comm.transport(like)}
    return {**summary(seconds), "transport": by}


def summary(seconds: Array) -> dict[str, Any]:
    """Return medians and quartiles, [lower, median, upper], of seconds by round and kind.

    usual, left_out, not_overlapped, exposed and whole in seconds; hidden, a share, or None where
    the quartiles of exposed, or of whole, are further apart than WIDEST of the median whole.
    A round's hidden share is 1 - its exposed time / the median whole: so the median is that of the
    medians, and one round with a small whole counts no more than others. Its quartiles are those of
    exposed alone, so the whole is measured by itself.
    """
    usual, left_out, not_overlapped = seconds.T
    exposed, whole = usual - left_out, not_overlapped - left_out
    found: dict[str, Any] = {
        "rounds": len(seconds),
        "usual": _quartiles(usual),
        "left_out": _quartiles(left_out),
        "not_overlapped": _quartiles(not_overlapped),
        "exposed": _quartiles(exposed),
        "whole": _quartiles(whole),
        "hidden": None,
    }
    whole_median = found["whole"][1]
    spread = max(upper - lower for lower, _, upper in (found["exposed"], found["whole"]))
    if whole_median > 0 and spread <= WIDEST * whole_median:
        found["hidden"] = _quartiles(1 - exposed / whole_median)
    return found


def _quartiles(values: Array) -> list[float]:
    return [float(value) for value in np.percentile(values, [25, 50, 75])]


class _Timer:
    """Times epochs of each kind on one rank."""

    def __init__(self, comm: AnyCommunicator, network: Network) -> None:
        self._comm, self._network = comm, network
        self._in_barriers = 0.0  # seconds in barriers, in this epoch
        self._barriers: list[tuple[Any, Any]] = []  # events around them, where a GPU waits
        self._one = np.zeros_like(network.context.like, shape=1)

    def time(self, kind: Kind, epoch: Callable[[], object]) -> float:
        """Return the seconds of an epoch on this rank, those in barriers left out."""
        self._network.exchange(
            overlap=kind != "not_overlapped",
            skip_exchange=kind == "left_out",
            before=self._barrier if kind == "not_overlapped" else None,
        )
        self._network.synchronize()
        self._comm.barrier()
        self._in_barriers = 0.0
        start = perf_counter()
        epoch()
        self._network.synchronize()
        seconds = perf_counter() - start
        return seconds - self._in_barriers - self._between_events()

    def _barrier(self) -> None:
        """Wait until all ranks come to this exchange."""
        if self._network.context.on_gpu:
            self._barrier_in_stream()
            return
        start = perf_counter()
        self._comm.barrier()
        self._in_barriers += perf_counter() - start

    def _barrier_in_stream(self) -> None:
        """Let the GPU wait for the others, by a sum over all ranks.

        A host that waited here would launch what follows late, which would count as communication.
        """
        import cupy

        begun, done = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        self._comm.follow(self._comm.iallreduce(self._one))
        done.record()
        self._barriers.append((begun, done))

    def _between_events(self) -> float:
        """Return the seconds in barriers of the GPU's, which has come through them."""
        barriers, self._barriers = self._barriers, []
        if not barriers:
            return 0.0
        import cupy

        return sum(float(cupy.cuda.get_elapsed_time(*pair)) for pair in barriers) / 1e3
