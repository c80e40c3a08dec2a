"""Commands and environments as data, and the MPI that is here runs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.cluster.mpi.hosts import Host
from penstock.cluster.mpi.mpiexec import (
    Launcher,
    Library,
    exported_names,
    failure_in,
    find_launcher,
    inside_mpi_job,
    launch_command,
    launch_environment,
    loaded_library,
    rank_lines,
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
        (OPEN_MPI_5, None, None, True, f"{UNBOUND} --output tag -x A"),
        (
            OPEN_MPI_5,
            TWO,
            "/a",
            False,
            f"{UNBOUND} --output tag --prtemca plm_ssh_agent /a --host h1:1,h2:3 -x A",
        ),
        (
            OPEN_MPI_4,
            TWO,
            "/a",
            False,
            f"{UNBOUND} --tag-output --mca plm_rsh_agent /a --host h1:1,h2:3 -x A",
        ),
        (SRUN, None, None, False, "--label --kill-on-bad-exit=1 --overlap --cpu-bind=none"),
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
    inside = mine | {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0", "PRTE_LAUNCHED": "1"}
    inside |= {"OPAL_PREFIX": "/o"}
    assert set(launch_environment(HYDRA, inside, root=False)) == {
        *("HOME", "SLURM_JOB_ID", "DASK_X", "OMP_NUM_THREADS", "I_MPI_PIN")
    }
    user = {"PMIX_MCA_gds": "hash", "OMPI_MCA_btl": "tcp", "OMP_NUM_THREADS": "4"}
    assert launch_environment(OPEN_MPI_5, user, root=False) == user


def test_root_is_allowed_where_it_must_be_asked() -> None:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    assert launch_environment(OPEN_MPI_4, {}, root=True) == allowed | {"OMP_NUM_THREADS": "1"}
    assert launch_environment(OPEN_MPI_4, {}, root=False) == {"OMP_NUM_THREADS": "1"}
    assert not allowed.keys() & launch_environment(HYDRA, {}, root=True).keys()


def test_slurm_is_told_what_a_wheel_speaks() -> None:
    wheel = Library("mpich", (5,), f"{sys.prefix}/lib/libmpi.so.12", "MPICH 5")
    site = Library("mpich", (5,), "/opt/mpich/lib/libmpi.so.12", "MPICH 5")
    assert launch_environment(SRUN, {}, root=False, library=wheel)["SLURM_MPI_TYPE"] == "pmi2"
    given = {"SLURM_MPI_TYPE": "pmix"}
    assert launch_environment(SRUN, given, root=False, library=wheel)["SLURM_MPI_TYPE"] == "pmix"
    for library in (site, None):
        assert "SLURM_MPI_TYPE" not in launch_environment(SRUN, {}, root=False, library=library)


def test_what_travels_to_other_hosts() -> None:
    names = ["PYTHONPATH", "OMP_NUM_THREADS", "DASK_A__B", "PENSTOCK_DATA", "LD_LIBRARY_PATH"]
    assert exported_names(dict.fromkeys([*names, "HOME", "PATH", "DISPLAY"], "")) == sorted(names)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),
        ({"PMI_RANK": "0"}, None),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "2"}, None),
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
    assert rank_lines(ended.stdout) == {rank: [f"hello from {rank} of 4"] for rank in range(4)}, (
        ended.stdout
    )
    assert failure_in(ended.stdout) is None


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "said"),
    [("kill", "was killed by signal 9 (Killed)"), ("exit", "exited with code 3")],
)
def test_the_log_says_how_a_rank_died(how: str, said: str) -> None:
    ended = start(sys.executable, "-P", "-c", PROGRAM, how)
    assert ended.returncode != 0
    failure = failure_in(ended.stdout) or ""
    assert failure.endswith(said), ended.stdout
    who = failure.removesuffix(said).split(" on ")[0]
    assert "2" in who.replace(",", "").split(), ended.stdout


@pytest.mark.mpi
def test_abort_ends_all_ranks_with_its_code() -> None:
    ended = start(sys.executable, "-P", "-c", PROGRAM, "abort")
    assert ended.returncode == 7, ended.stdout
    # What the rank wrote last is lost now and then: MPICH and Open MPI 4 end before they read it.
    failure = failure_in(ended.stdout)
    assert failure is None or failure.endswith("called MPI_Abort with code 7"), ended.stdout


@pytest.mark.mpi
def test_the_log_says_that_the_program_is_not_there() -> None:
    ended = start("/nowhere/python", "-c", "pass")
    assert ended.returncode != 0
    assert (failure_in(ended.stdout) or "").startswith("/nowhere/python could not be started")
