"""Who sends no heartbeat is named, then lost; who computes, or comes back, is not."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from penstock import gang
from penstock.cluster.connect import connect
from penstock.errors import GangError


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_stands_still_is_lost_and_its_world_started_again() -> None:
    def stand_still(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.barrier()

    with connect("mpi", workers=2, worker_timeout=2) as client:
        begun = time.monotonic()
        with pytest.raises(GangError) as caught:
            gang.run(client, stand_still, ranks=2)
        assert caught.value.may_retry
        assert time.monotonic() - begun < 60  # and not the 600 s that a message may take
        assert gang.run(client, lambda comm: comm.rank, ranks=2) == [0, 1]
