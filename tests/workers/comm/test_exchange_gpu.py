"""Arrays on GPUs travel between ranks as NumPy says: through NCCL, and through pinned memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import connect, gang
from penstock.errors import GangError, UsageError
from penstock.workers.comm.exchange_device import _RECORD, choose
from penstock.workers.comm.exchange_nccl import by_tag, reduced_as

Mpirun = Callable[..., Any]
RANKS = Path(__file__).with_name("gpu_ranks.py")
CASES = (
    "kind messages reductions refusals collectives disagreements together streams followed marked "
    "overlapped timeouts late_stream reuse renewed stuck_at_meeting stuck_receive stuck_stream "
    "stuck_reduction stuck_first_reduction"
).split()


@cache
def run(mpirun: Mpirun, ranks: int, kind: str, *cases: str) -> str:
    """Run cases of gpu_ranks.py in one MPI world, and return what it printed."""
    try:
        done = mpirun(RANKS, ranks, kind, *cases, timeout=180, gpus=True)
    except pytest.fail.Exception as late:  # kept, so that not every case waits as long
        return str(late)
    print(done.stdout)  # what cases took; shown by pytest -rP
    return f"{done.stdout}\nexit code {done.returncode}"


def passed(mpirun: Mpirun, ranks: int, kind: str, case: str, cases: Sequence[str]) -> None:
    output = run(mpirun, ranks, kind, *cases)
    assert f"passed {case} " in output, output


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_on_one_gpu(mpirun: Mpirun, case: str) -> None:
    passed(mpirun, 2, "shared", case, CASES)


@pytest.mark.gpu
@pytest.mark.mpi
def test_one_rank_needs_no_others(mpirun: Mpirun) -> None:
    passed(mpirun, 1, "own", "collectives", ["kind", "messages", "reductions", "collectives"])


@pytest.mark.multigpu
@pytest.mark.mpi
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_gpu_each(mpirun: Mpirun, ranks: int, case: str) -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    passed(mpirun, ranks, "own", case, CASES)


@pytest.mark.gpu
@pytest.mark.mpi
def test_gangs_of_workers_with_gpus() -> None:
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    ranks = min(max(2, count), 4)
    way = "NcclExchange" if count >= ranks else "StagedExchange"

    # Nested, so that they travel by value.
    def total(comm: Any) -> tuple[float, str]:
        import cupy

        array = comm.allreduce(cupy.full(1000, comm.rank + 1.0))
        return float(array[999]), type(comm._device).__name__

    def broken(comm: Any, *, together: bool) -> None:
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
            with pytest.raises(GangError, match="rank 1 .* one is broken") as raised:
                gang.run(client, broken, kwargs={"together": together})
            assert time.monotonic() - started < 5, raised.value
        assert gang.run(client, total) == [(expected, way)] * ranks


@pytest.mark.multigpu
@pytest.mark.mpi
def test_more_elements_than_an_int_counts(mpirun: Mpirun) -> None:
    import cupy

    if cupy.cuda.runtime.memGetInfo()[0] < 16 << 30:
        pytest.skip("needs 16 GB of GPU memory")
    passed(mpirun, 2, "own", "large", ["large"])


def test_messages_are_in_the_same_order_on_both_sides() -> None:
    random = np.random.default_rng(0)
    posted = [(int(tag), 1, f"{tag} {n}") for n, tag in enumerate(random.integers(0, 5, 100))]
    # Another order, in which those of one tag keep theirs.
    tags = random.permutation(5)
    other = [message for tag in tags for message in posted if message[0] == tag]
    assert other != posted
    assert by_tag(other) == by_tag(posted)


@pytest.mark.parametrize("char", "bBhHiIlLqQefd")
def test_types_that_are_reduced(char: str) -> None:
    dtype = np.dtype(char)
    name, wider = reduced_as(dtype)
    reduced = dtype if wider is None else wider
    assert np.can_cast(dtype, reduced, "safe")
    assert reduced.name.upper() == name


@pytest.mark.parametrize("char", "?FDgSU")
def test_types_that_are_not(char: str) -> None:
    with pytest.raises(UsageError, match=r"cannot reduce arrays of .*uint8"):
        reduced_as(np.dtype(char))


@pytest.mark.parametrize(
    ("ranks", "way"),
    [
        ([("a", 22800, False), ("b", 22800, False)], "nccl"),
        ([("a", 22800, True), ("b", 22800, True)], "nccl"),
        ([("a", 22800, False), ("a", 22800, False)], "staged"),
        ([("a", 22800, True), ("a", 22800, True)], "aware"),
        ([("a", 22800, False), ("b", 22700, False)], "staged"),
        ([("a", 0, True), ("b", 0, True)], "aware"),
        ([("a", 0, True), ("b", 0, False)], "staged"),
        ([("a", 22800, False), ("", 22800, False)], "none"),
        ([("a", 22800, True)], "staged"),
        ([("", 0, False)], "none"),
    ],
)
def test_the_way_is_chosen_by_all(ranks: list[tuple[str, int, bool]], way: str) -> None:
    assert choose(np.array([(*rank, "") for rank in ranks], _RECORD)) == way
