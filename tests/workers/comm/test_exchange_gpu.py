"""Arrays on GPUs travel between ranks as NumPy says: through NCCL, and through pinned memory."""

import time
from pathlib import Path

import pytest

from penstock import connect, gang
from penstock.errors import GangError

RANKS = Path(__file__).with_name("gpu_ranks.py")
CASES = (
    "kind messages reductions collectives disagreements together streams followed marked "
    "overlapped one_graph timeouts late_stream reuse renewed stuck_at_meeting stuck_receive "
    "stuck_stream stuck_reduction stuck_first_reduction"
).split()


def passed(done, cases):
    """Check that all cases passed: ranks do not call MPI_Finalize, so Open MPI exits with 1."""
    assert "FAILED" not in done.stdout
    assert [case for case in cases if f"passed {case} " not in done.stdout] == [], done.stdout


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "kind", "cases"),
    [
        (1, "own", CASES[:4]),
        (2, "shared", CASES),  # of one GPU
        pytest.param(2, "own", CASES, marks=pytest.mark.multigpu),
        pytest.param(4, "own", CASES, marks=pytest.mark.multigpu),
    ],
)
def test_arrays_on_gpus_travel_as_numpy_says(mpirun, ranks, kind, cases):
    import cupy

    if kind == "own" and cupy.cuda.runtime.getDeviceCount() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    passed(mpirun(RANKS, ranks, kind, *cases, timeout=240, gpus=True), cases)


@pytest.mark.gpu
@pytest.mark.mpi
def test_gangs_of_workers_with_gpus():
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    ranks = min(max(2, count), 4)
    way = "NCCL" if count >= ranks else "MPI messages from pinned host memory"

    # Nested, so that they travel by value.
    def total(comm):
        import cupy

        array = comm.allreduce(cupy.full(1000, comm.rank + 1.0))
        return float(array[999]), comm.transport(array)

    def broken(comm, *, together):
        import cupy

        if together:
            comm.allreduce(cupy.ones(10))
        if comm.rank == 1:
            raise ValueError("one is broken")
        comm.allreduce(cupy.zeros(1 << 20))

    with connect("mpi", workers=ranks, device="gpu") as client:
        for together in (True, False, True):
            expected = ranks * (ranks + 1) / 2
            for _ in range(2):
                assert gang.run(client, total) == [(expected, way)] * ranks
            started = time.monotonic()
            with pytest.raises(GangError) as raised:
                gang.run(client, broken, kwargs={"together": together})
            assert time.monotonic() - started < 5, raised.value
        assert gang.run(client, total) == [(expected, way)] * ranks


@pytest.mark.multigpu
@pytest.mark.mpi
def test_more_elements_than_an_int_counts(mpirun):
    import cupy

    if cupy.cuda.runtime.memGetInfo()[0] < 16 << 30:
        pytest.skip("needs 16 GB of GPU memory")
    passed(mpirun(RANKS, 2, "own", "large", timeout=180, gpus=True), ["large"])
