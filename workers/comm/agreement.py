"""Checks that the ranks of a collective agree, before they wait for it.

MPI and NCCL accept each rank's size and type as they are: if ranks disagree, the result is partly
uninitialised memory, or never arrives. The descriptions travel beside the arrays, so a long
collective pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray
from penstock.errors import UsageError
from penstock.workers.comm.exchange import Pending

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

_TEXT = "S48"


def described(array: AnyArray) -> bytes:
    """Return an array's size and type; all empty arrays have the same description."""
    if not isinstance(array, np.ndarray):
        from penstock.workers.comm.exchange_nccl import on_device

        array = on_device(array)
    return b"%d %s" % (array.size, array.dtype.str.encode()) if array.size else b"nothing"


def check_own(outgoing: AnyArray, incoming: AnyArray) -> None:
    """Raise UsageError unless a rank sends itself what it receives."""
    sent, expected = described(outgoing), described(incoming)
    if sent != expected:
        raise UsageError(
            "alltoallv: a rank sends itself another array than it receives",
            expected=expected.decode(),
            got=sent.decode(),
        )


class Agreement(Pending):
    """This rank's description for each rank of a collective, and the expected ones."""

    def __init__(
        self, comm: Comm, collective: str, says: Sequence[bytes], expects: Sequence[bytes]
    ) -> None:
        self._collective, self._expects = collective, np.array(expects, _TEXT)
        self._came = np.empty_like(self._expects)
        request = comm.Ialltoall(np.array(says, _TEXT).view(np.uint8), self._came.view(np.uint8))
        super().__init__([request], finish=self._compare)

    def _compare(self) -> None:
        if self._came.tobytes() == self._expects.tobytes():
            return
        rank = int(np.flatnonzero(self._came != self._expects)[0])
        raise UsageError(
            f"ranks disagree on the size or type of the arrays of {self._collective}",
            expected=self._expects[rank].decode(),
            got=f"rank {rank}: {self._came[rank].decode(errors='replace')}",
        )
