"""Which mpiexec belongs to the MPI that mpi4py loads, and what is said where none does."""

import pytest

from penstock.cluster.mpi.launcher import (
    Launcher,
    Library,
    find_launcher,
    read_launcher,
    read_library,
)
from penstock.errors import ClusterError

HYDRA = """HYDRA build details:
    Version:                                 5.0.2
    Release Date:                            Fri Sep 25 20:45:26 UTC 2026
"""
OPEN_MPI_4 = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.11\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
SLURM = "slurm-wlm 22.05.8\n"


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
        (HYDRA, "hydra", (5, 0, 2)),
        (INTEL, "hydra", (2021, 18, 1)),
        (OPEN_MPI_4, "openmpi", (4, 1, 4)),
        (OPEN_MPI_5, "openmpi", (5, 0, 11)),
        (SLURM, "srun", (22, 5, 8)),
    ],
)
def test_launchers(text, family, version):
    launcher = read_launcher("p", text)
    assert launcher is not None
    assert (launcher.family, launcher.version) == (family, version)


@pytest.fixture
def install(tmp_path):
    """Put a program that answers --version in a folder of its own."""

    def put(name, text):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
        program.chmod(0o755)
        return program

    return put


def mpich(path="/x/libmpi.so.12"):
    return Library("mpich", (5, 0, 2), str(path), "MPICH 5.0.2")


def openmpi(path="/x/libmpi.so.40"):
    return Library("openmpi", (4, 1, 4), str(path), "Open MPI 4.1.4")


def test_the_one_next_to_the_library_comes_first(install, tmp_path):
    launcher = install("mpi/bin/mpiexec", HYDRA)
    on_path = install("path/mpiexec", HYDRA)
    for library in ("mpi/lib/libmpi.so.12", "mpi/lib/release/libmpi.so.12"):
        found = find_launcher(None, mpich(tmp_path / library), path=str(on_path.parent))
        assert found == Launcher(str(launcher), "hydra", (5, 0, 2))
    found = find_launcher(None, mpich(tmp_path / "else/lib/x.so"), path=str(on_path.parent))
    assert found.path == str(on_path)


def test_another_mpi_of_the_same_folder_is_passed_by(install):
    # What Debian's alternatives make of a machine with both.
    install("bin/mpiexec", OPEN_MPI_4)
    install("bin/mpiexec.hydra", HYDRA)
    folder = str(install("bin/mpiexec.openmpi", OPEN_MPI_4).parent)
    assert find_launcher(None, mpich(), path=folder).path.endswith("mpiexec.hydra")
    assert find_launcher(None, openmpi(), path=folder).family == "openmpi"


def test_one_of_another_mpi(install):
    program = install("bin/mpiexec", OPEN_MPI_4)
    for given in (None, str(program)):
        with pytest.raises(ClusterError):
            find_launcher(given, mpich(), path=str(program.parent))
