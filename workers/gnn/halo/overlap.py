"""The hidden share of the communication: measured on request, in separate epochs.

    found = measure_overlap(comm, network, epoch, restore, rounds=7)

After a training run, epochs of three kinds alternate, all by the same transport:

usual           as in a training run
left out        nothing is exchanged: the same work is done on stale rows and sums
not overlapped  each exchange begins after a barrier, whose time is not counted, and completes
                before any other computation

    exposed = usual - left out          the time that communication adds to an epoch
    whole   = not overlapped - left out the time of the communication itself
    hidden  = 1 - exposed / whole, that is a round's exposed / the median whole of all rounds

Times are wall times of the slowest rank. So a rank with more to compute affects all three, and
waiting for it never counts as communication; if another rank is the slower one in another part of
an epoch, waiting for it is in the usual epochs only, and lowers the hidden share. Packing rows,
adding received ones and testing messages are communication, which epochs without it leave out.

On GPUs the barrier is in the streams, a sum over all ranks between two events: a host that waited
for the GPU in every exchange would launch the next kernels late, which would count as
communication.

Results on stale rows are useless, so ``restore`` undoes the changes of each epoch, outside of the
timed part.
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
    """Return the figures of ``summary``, with the transport; every rank calls it.

    epoch    trains one epoch: forward, loss, backward, sums over ranks, update
    restore  undoes its changes
    """
    timer = _Timer(comm, network)
    seconds = np.zeros((rounds, len(KINDS)))
    settle, network.clock.settle = network.clock.settle, None  # it would wait for every kernel
    try:
        # The first round allocates and compiles new code. It begins with the usual kind:
        # precomputed values need rows that did travel.
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
    return {**summary(seconds), "transport": comm.transport(like)}


def summary(seconds: Array) -> dict[str, Any]:
    """Return medians and quartiles, [lower, median, upper], of seconds by round and kind.

    usual, left_out, not_overlapped, exposed and whole in seconds; hidden, a share, or None where
    the quartiles of exposed, or of whole, are further apart than WIDEST of the median whole.
    A round's hidden share is 1 - its exposed time / the median whole: so the median is that of the
    medians, and one round with a small whole has the same weight as others. Its quartiles are those
    of exposed, so the whole is measured by itself.
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
    def __init__(self, comm: AnyCommunicator, network: Network) -> None:
        self._comm, self._network = comm, network
        self._in_barriers = 0.0  # seconds in barriers, in this epoch
        self._barriers: list[tuple[Any, Any]] = []  # events around them, if a GPU waits
        self._one = np.zeros_like(network.context.like, shape=1)

    def time(self, kind: Kind, epoch: Callable[[], object]) -> float:
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
        if self._network.context.on_gpu:
            self._barrier_in_stream()
            return
        start = perf_counter()
        self._comm.barrier()
        self._in_barriers += perf_counter() - start

    def _barrier_in_stream(self) -> None:
        """Make the GPU wait for the other ranks, by a sum over all ranks.

        If the host waited, it would launch the next kernels late, which would count as
        communication.
        """
        import cupy

        begun, done = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        self._comm.follow(self._comm.iallreduce(self._one))
        done.record()
        self._barriers.append((begun, done))

    def _between_events(self) -> float:
        """Return the seconds in the GPU's barriers, which are complete."""
        barriers, self._barriers = self._barriers, []
        if not barriers:
            return 0.0
        import cupy

        return sum(float(cupy.cuda.get_elapsed_time(*pair)) for pair in barriers) / 1e3
