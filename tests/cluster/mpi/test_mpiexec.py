"""Commands and environments as data, and the MPI that is here runs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.cluster.mpi import inside_mpi_job
from penstock.cluster.mpi.hosts import Host
from penstock.cluster.mpi.mpiexec import (
    Launcher,
    exported_names,
    find_launcher,
    launch_command,
    launch_environment,
    loaded_library,
)
from penstock.errors import MissingExtra

HYDRA = Launcher("/m/mpiexec", "hydra", (5, 0, 2))
OPEN_MPI_4 = Launcher("/o/mpiexec", "openmpi", (4, 1, 4))
OPEN_MPI_5 = Launcher("/o/mpiexec", "openmpi", (5, 0, 11))
SRUN = Launcher("/s/srun", "srun", (24, 5))
TWO = (Host("h1", 1), Host("h2", 3))
UNBOUND = "--map-by slot:OVERSUBSCRIBE --bind-to none"


@pytest.mark.parametrize(
    ("launcher", "hosts", "agent", "gpus", "words"),
    [
        (HYDRA, None, None, False, "-prepend-rank -print-all-exitcodes -bind-to none"),
        (
            HYDRA,
            TWO,
            "/a",
            True,
            "-prepend-rank -print-all-exitcodes -bind-to none -launcher ssh -launcher-exec /a "
            "-hosts h1:1,h2:3",
        ),
        (
            OPEN_MPI_5,
            None,
            None,
            False,
            f"{UNBOUND} --output tag --mca pml ob1 --mca btl self,sm,tcp -x A",
        ),
        (
            OPEN_MPI_4,
            TWO[1:],
            None,
            False,
            f"{UNBOUND} --tag-output --host h2:3 --mca pml ob1 --mca btl self,vader,tcp -x A",
        ),
        (
            SRUN,
            TWO,
            None,
            True,
            "--label --kill-on-bad-exit=1 --overlap --cpu-bind=none --distribution=arbitrary "
            "--nodelist=h1,h2,h2",
        ),
    ],
)
def test_commands(
    launcher: Launcher, hosts: tuple[Host, ...] | None, agent: str | None, gpus: bool, words: str
) -> None:
    command = launch_command(
        launcher,
        ["python", "-P", "a b.py"],
        ranks=3,
        hosts=hosts,
        agent=agent,
        gpus=gpus,
        exported=["A"],
    )
    assert command == [launcher.path, *words.split(), "-n", "3", "python", "-P", "a b.py"]


def test_the_job_around_us_is_forgotten() -> None:
    mine = {"HOME": "/root", "SLURM_JOB_ID": "5", "DASK_X": "1", "OMPI_MCA_pml": "ucx"}
    job = {
        "PMI_RANK": "0",
        "PMI_FD": "11",
        "HYDI_CONTROL_FD": "7",
        "MPI_LOCALRANKID": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEP_ID": "3",
        "SLURM_STEPID": "3",
    }
    for launcher in (HYDRA, OPEN_MPI_5, SRUN):
        env = launch_environment(launcher, mine | job, root=False)
        extra = {"I_MPI_PIN"} if launcher is HYDRA else set()
        assert set(env) - {"OMP_NUM_THREADS"} - extra == set(mine)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}, (1, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # a batch script
    ],
)
def test_inside_a_job(environ: dict[str, str], expected: tuple[int, int] | None) -> None:
    assert inside_mpi_job(environ) == expected


PROGRAM = """
import os, signal, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
sys.stdout.write(f"hello from {world.rank} of {world.size}\\n")
sys.stdout.flush()
world.Barrier()
if world.rank == 2:
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "exit":
        os._exit(3)
    elif sys.argv[1] == "abort":
        world.Abort(7)
if sys.argv[1] != "hello":
    time.sleep(60)
"""


def start(
    *arguments: str, hosts: tuple[Host, ...] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        library = loaded_library()
    except MissingExtra as error:
        pytest.skip(str(error))
    launcher = find_launcher(None, library)
    root = os.geteuid() == 0
    env = launch_environment(launcher, os.environ, root=root, library=library)
    command = launch_command(
        launcher, arguments, ranks=4, hosts=hosts, exported=exported_names(env)
    )
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=env,
        timeout=50,
        restore_signals=False,
    )


@pytest.mark.mpi
@pytest.mark.parametrize("hosts", [None, (Host("localhost", 4),)])
def test_four_ranks_say_hello(hosts: tuple[Host, ...] | None) -> None:
    ended = start(sys.executable, "-P", "-c", PROGRAM, "hello", hosts=hosts)
    assert ended.returncode == 0, ended.stdout
    for rank in range(4):
        assert f"hello from {rank} of 4" in ended.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_rank_that_dies_ends_the_others(how: str) -> None:
    ended = start(sys.executable, "-P", "-c", PROGRAM, how)
    assert ended.returncode != 0
