"""Sums over ranks; with MPI they are tested in test_halo.py, in the gang that runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.workers.gnn.halo.gradients import GradientReducer


@pytest.mark.parametrize("overlap", [True, False])
def test_all_that_were_started_are_summed(
    on_threads: Callable[..., list[Any]], overlap: bool
) -> None:
    def rank(comm: Any) -> None:
        reducer = GradientReducer(comm, overlap=overlap)
        together = np.arange(12, dtype=np.float32) * (comm.rank + 1)
        for _ in range(2):
            parts = [together[8:], together[:8].reshape(2, 4)]
            for part in parts:
                reducer.start(part)
                reducer.test()
            reducer.wait()
        assert reducer.sent_bytes == 2 * together.nbytes
        np.testing.assert_array_equal(together, np.arange(12) * 6 * 3)

    on_threads(3, rank)
