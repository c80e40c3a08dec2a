"""A GPU that is there and cannot be used is said; the ranks of a gang agree."""

import socket

import pytest

from penstock import connect, gang
from penstock.errors import ClusterError, MissingExtra, PenstockWarning

HOST = socket.gethostname()
LOST_LIBRARY = "libnvrtc.so.12: cannot open shared object file"
BROKEN = f"raise ImportError({LOST_LIBRARY!r})"
# The second of two ranks finds another CuPy than the first, which works as far as looking goes.
ON_RANK_1 = f"""
import os
from penstock.workers.resources.device import local_rank
if local_rank(os.environ) == 1:
    {BROKEN}
class runtime:
    getDeviceCount = staticmethod(lambda: 1)
class nvrtc:
    getVersion = staticmethod(lambda: (12, 4))
class cuda:
    pass
cuda.runtime, cuda.nvrtc = runtime, nvrtc
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_that_do_not_agree_are_named(pretend_gpu):
    pretend_gpu(ON_RANK_1)
    with (
        pytest.warns(PenstockWarning),
        connect("mpi", workers=2) as client,
        pytest.raises(ClusterError) as caught,
    ):
        gang.run(client, lambda comm: comm.rank)
    said = str(caught.value)
    assert f"rank 0 on host {HOST}" in said
    assert f"rank 1 on host {HOST}" in said
    assert LOST_LIBRARY in said
    with pytest.raises(MissingExtra), connect("mpi", workers=2, device="gpu"):
        pass
