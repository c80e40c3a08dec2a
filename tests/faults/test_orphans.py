"""Ranks and mpiexec end with the process that started them, whatever they do at that moment."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import psutil
import pytest
from processes import below, is_rank, ranks_that, until

from penstock.cluster.mpi.launcher import loaded_library
from penstock.workers.comm.segments import sweep_segments

# The first code of every rank, which stops it at a point: loading its libraries, in MPI_Init, in
# which rank 0 waits for the other, and with MPI up but unknown to the scheduler.
PHASES = {
    "import": "import time; time.sleep(600)",
    "mpi": "import time; time.sleep(600 * (rank == 1))",
    "register": "import asyncio, distributed\n"
    "    async def never(self): await asyncio.sleep(600)\n"
    "    distributed.Worker.start_unsafe = never",
}
ENDED_WITHIN = 20.0  # also with ten times more processes than cores


@pytest.fixture
def edges(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{i} {i * 7 % 100}\n" for i in range(100)))
    return path


def kill_all(processes):
    for one in processes:
        with suppress(psutil.Error):
            one.kill()


def hear_signals():
    """Undo what nohup, and a shell that starts tests in the background, have processes ignore."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def command_with_ranks(edges, temporary, phase):
    """Start etl on two ranks, and return it and all below it once both are in ``phase``."""
    command = [sys.executable, "-P", "-m", "penstock", "etl", str(edges), str(edges.parent / "g")]
    process = subprocess.Popen(
        [*command, "--cluster", "mpi", "-n", "2"],
        env={**os.environ, "TMPDIR": str(temporary)}
        | ranks_that(PHASES[phase], edges.parent / "site"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )
    until(lambda: len([one for one in below(process) if is_rank(one)]) == 2, process)
    if phase != "import":
        time.sleep(2.0)
    return process, below(process)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("phase", "number"),
    [
        pytest.param(phase, number, marks=[pytest.mark.slow] * (place > 0))
        for place, (phase, number) in enumerate(product(PHASES, (signal.SIGKILL, signal.SIGTERM)))
    ],
)
def test_ranks_end_with_their_client(edges, temporary, phase, number):
    process, family = command_with_ranks(edges, temporary, phase)
    process.send_signal(number)
    _, alive = psutil.wait_procs(family, timeout=ENDED_WITHIN)
    kill_all(alive)
    process.communicate()
    assert not alive
    assert not list(temporary.iterdir())


def killed_alone(process, who):
    """Kill one process of a command with ranks, and see that all the others end."""
    family, supervisor = below(process), "penstock.cluster.mpi.supervisor"
    kinds = {
        "mpiexec": lambda one: supervisor in one.parent().cmdline(),
        "supervisor": lambda one: supervisor in one.cmdline(),
        "rank": is_rank,
    }
    one = process if who == "client" else next(filter(kinds[who], family))
    if who == "supervisor":
        until(lambda: list(Path("/dev/shm").glob(f"penstock-*-{one.pid}-*")))  # its note
    one.kill()
    _, alive = psutil.wait_procs(family, timeout=ENDED_WITHIN)
    kill_all(alive)
    process.communicate(timeout=20)
    assert not alive


def files_of(family):
    """The shared memory of MPICH that processes use."""
    found = set()
    for one in family:
        with suppress(psutil.Error):
            names = [entry.path for entry in one.memory_maps()]
            found |= {Path(name) for name in names if name.startswith("/dev/shm/mpich_shm_")}
    return {path for path in found if path.exists()}


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("who", ["client", "mpiexec", "rank", "supervisor"])
def test_a_death_in_mpi_init_leaves_no_shared_memory(edges, temporary, who):
    if loaded_library().name != "mpich":
        pytest.skip("needs MPICH")
    process, _ = command_with_ranks(edges, temporary, "mpi")
    files = until(lambda: files_of(below(process)), process)
    assert len(files) == 1
    killed_alone(process, who)
    if who == "supervisor":
        sweep_segments()  # as the next world on this host does
    assert not [path for path in files if path.exists()]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("who", ["supervisor", "mpiexec"])
def test_ranks_end_with_what_is_between(edges, temporary, who):
    process, _ = command_with_ranks(edges, temporary, "register")
    killed_alone(process, who)
    assert process.returncode == 1
