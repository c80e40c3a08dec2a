"""Hosts, mpiexec, its command and the environment of its ranks, for every MPI."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.mpi import inside_mpi_job
from penstock.cluster.mpi.hosts import Host, check_hosts, parse_hosts
from penstock.cluster.mpi.launcher import (
    Launcher,
    Library,
    find_launcher,
    read_launcher,
    read_library,
)
from penstock.cluster.mpi.mpiexec import launch_command, launch_environment
from penstock.cluster.mpi.rank_command import world_environment
from penstock.errors import ClusterError, UsageError

HYDRA_SAYS = (
    "HYDRA build details:\n    Version:          5.0.2\n    Release Date:       Fri Sep 25\n"
)
OPEN_MPI_SAYS = (
    "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
)
HYDRA = Launcher("/m/mpiexec", "hydra", (5, 0, 2))
OPEN_MPI_4 = Launcher("/o/mpiexec", "openmpi", (4, 1, 4))
OPEN_MPI_5 = Launcher("/o/mpiexec", "openmpi", (5, 0, 11))
SRUN = Launcher("/s/srun", "srun", (24, 5))
MPICH = Library("mpich", (5, 0, 2), "/x/libmpi.so.12", "MPICH 5.0.2")
OPEN_MPI = Library("openmpi", (4, 1, 4), "/x/libmpi.so.40", "Open MPI 4.1.4")


# -- hosts -----------------------------------------------------------------------------------------


def test_hosts_are_read_as_mpich_and_open_mpi_spell_them(tmp_path):
    (tmp_path / "hosts.txt").write_text(
        "\n# the partition of tonight\nh1            # one slot\nh2:4\nh3 slots=4\n"
        "h4.site.org slots=4 max_slots=8\n   10.0.0.5:2\n\nh1:2\nh3   max-slots=2\n"
    )
    hosts = parse_hosts(str(tmp_path / "hosts.txt"))
    assert {host.name: host.slots for host in hosts} == {
        "h1": 3,
        "h2": 4,
        "h3": 5,
        "h4.site.org": 4,
        "10.0.0.5": 2,
    }
    with pytest.raises(UsageError):
        check_hosts(parse_hosts("h1:2,h2:1"), 8)


@pytest.mark.parametrize("line", ["h1:0", "h1:two", "h1:2 slots=2", "h1 cores=2", "-x:4"])
def test_a_bad_line_is_named(line, tmp_path):
    (tmp_path / "hosts.txt").write_text(f"h0\n{line}\n")
    with pytest.raises(UsageError) as caught:
        parse_hosts(str(tmp_path / "hosts.txt"))
    assert line in str(caught.value)


# -- which MPI it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25", "mpich", (5, 0, 2)),
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "openmpi", (4, 1, 4)),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n", "intel", (2021, 18, 1)),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL", "cray", (8, 1, 28, 15)),
        ("Own MPI 7\nof this site", "other", ()),
    ],
)
def test_libraries(text, name, version):
    library = read_library(text, "/x/libmpi.so")
    assert (library.name, library.version) == (name, version)


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        (HYDRA_SAYS, "hydra", (5, 0, 2)),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20", "hydra", (2021, 18, 1)),
        (OPEN_MPI_SAYS, "openmpi", (4, 1, 4)),
        ("mpiexec (Open MPI) 5.0.11\n", "openmpi", (5, 0, 11)),
        ("slurm-wlm 22.05.8\n", "srun", (22, 5, 8)),
    ],
)
def test_launchers(text, family, version):
    assert read_launcher("p", text) == Launcher("p", family, version)


@pytest.fixture
def install(tmp_path):
    """Put a program that answers --version in a folder of its own."""

    def put(name, text):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
        program.chmod(0o755)
        return str(program)

    return put


def test_the_mpiexec_next_to_the_library_comes_first(install, tmp_path):
    launcher, on_path = (install(f"{one}/mpiexec", HYDRA_SAYS) for one in ("mpi/bin", "path"))
    for place, found in (
        ("mpi/lib/libmpi.so.12", launcher),
        ("mpi/lib/release/libmpi.so.12", launcher),
        ("else/lib/x.so", on_path),
    ):
        library = replace(MPICH, path=str(tmp_path / place))
        assert find_launcher(None, library, path=str(tmp_path / "path")) == replace(
            HYDRA, path=found
        )


def test_an_mpiexec_of_another_mpi_is_not_taken(install, tmp_path):
    folder, other = str(tmp_path / "bin"), install("bin/mpiexec", OPEN_MPI_SAYS)
    for given in (None, other):
        with pytest.raises(ClusterError):
            find_launcher(given, MPICH, path=folder)
    # What Debian's alternatives make of a machine with both.
    install("bin/mpiexec.openmpi", OPEN_MPI_SAYS)
    hydra = install("bin/mpiexec.hydra", HYDRA_SAYS)
    assert find_launcher(None, MPICH, path=folder).path == hydra
    assert find_launcher(None, OPEN_MPI, path=folder).family == "openmpi"


# -- its command and environment -------------------------------------------------------------------

TWO = (Host("h1", 1), Host("h2", 3))
PLAIN = {"hosts": None, "agent": None, "gpus": False}
UNBOUND = "--map-by slot:OVERSUBSCRIBE --bind-to none"
OF_HYDRA = "-prepend-rank -print-all-exitcodes -bind-to none"


@pytest.mark.parametrize(
    ("launcher", "options", "words"),
    [
        (HYDRA, {}, OF_HYDRA),
        (
            HYDRA,
            {"hosts": TWO, "agent": "/a", "gpus": True},
            f"{OF_HYDRA} -launcher ssh -launcher-exec /a -hosts h1:1,h2:3",
        ),
        (OPEN_MPI_5, {}, f"{UNBOUND} --output tag --mca pml ob1 --mca btl self,sm,tcp -x A"),
        (
            OPEN_MPI_4,
            {"hosts": TWO[1:]},
            f"{UNBOUND} --tag-output --host h2:3 --mca pml ob1 --mca btl self,vader,tcp -x A",
        ),
        (
            SRUN,
            {"hosts": TWO, "gpus": True},
            "--label --kill-on-bad-exit=1 --overlap --cpu-bind=none --distribution=arbitrary "
            "--nodelist=h1,h2,h2",
        ),
    ],
)
def test_commands(launcher, options, words):
    program = ["python", "-P", "a b.py"]
    command = launch_command(launcher, program, ranks=3, exported=["A"], **PLAIN | options)
    assert command == [launcher.path, *words.split(), "-n", "3", *program]


def test_the_mpi_job_around_a_command_is_forgotten():
    mine = {"HOME": "/root", "SLURM_JOB_ID": "5", "DASK_X": "1", "OMPI_MCA_pml": "ucx"}
    job = "PMI_RANK PMI_FD HYDI_CONTROL_FD MPI_LOCALRANKID SLURM_PROCID SLURM_STEP_ID SLURM_STEPID"
    for launcher in (HYDRA, OPEN_MPI_5, SRUN):
        env = launch_environment(launcher, mine | dict.fromkeys(job.split(), "3"), root=False)
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


@pytest.mark.parametrize(
    ("remote", "environ", "device"),
    [
        (False, {}, "lo"),
        (True, {}, None),
        (False, {"UCX_NET_DEVICES": "ib0"}, "ib0"),
        (False, {"UCX_TLS": "rc"}, None),
    ],
)
def test_ranks_of_one_host_listen_on_it_alone(remote, environ, device):
    env = world_environment(HYDRA, MPICH, environ, None if remote else Path("/tmp/w"))
    assert env.get("UCX_NET_DEVICES") == device
    assert env.get("FI_TCP_IFACE") == (None if remote else "lo")
    assert env.get("OMPI_MCA_btl_tcp_if_include") == (None if remote else "lo")
