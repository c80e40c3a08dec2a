"""Commands and environments as data, and the MPI that is here runs them."""

import pytest

from penstock.cluster.mpi import inside_mpi_job
from penstock.cluster.mpi.hosts import Host
from penstock.cluster.mpi.mpiexec import Launcher, launch_command, launch_environment

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
def test_commands(launcher, hosts, agent, gpus, words):
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


def test_the_job_around_us_is_forgotten():
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
def test_inside_a_job(environ, expected):
    assert inside_mpi_job(environ) == expected
