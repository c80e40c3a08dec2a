"""The checks: each tries one thing, in its own process, and yields findings.

    python -P -m penstock.pipelines.doctor.checks NAME FOLDER SECONDS

A check raises if its subject exists and does not work; an absent one is a finding. A new check is
one function below ``check``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.errors import PenstockError, pip_install
from penstock.limits import SMALLEST_LIMIT, available_memory, cores, total_memory
from penstock.locks import is_locked, try_lock
from penstock.options import options
from penstock.sizes import format_bytes, free_disk
from penstock.versions import versions


@options
class DoctorOptions:
    """How a machine is examined."""

    timeout: Annotated[float, Field(gt=0, le=600)] | None = None
    """seconds for each check [default: 30 to 90, by check]"""
    bandwidth: bool = True
    """measure the disk, which takes up to two seconds"""


@dataclass(frozen=True)
class Finding:
    """One thing that a machine has or lacks.

    state     ok; absent: missing, and needed only for its own features; warning: it works, and not
              as well as it could; broken: it was requested or is installed, and does not work
    remedy    the command, or the step, that fixes it
    compared  what must be the same on all workers of a cluster, by name
    """

    subject: str
    state: Literal["ok", "absent", "warning", "broken"]
    text: str
    remedy: str | None = None
    compared: dict[str, str] | None = None


@dataclass(frozen=True)
class Check:
    """One check.

    seconds  that it may take: some import libraries from a shared disk, or wake a GPU
    remedy   what fixes it if it fails
    find     gets a folder, and the seconds for measuring its disk
    needs    a package, and a GPU that works
    without  what happens if the package is not installed
    """

    subject: str
    seconds: float
    remedy: str
    find: Callable[[str, float], Iterator[Finding]]
    needs: str | None = None
    without: str = ""

    def findings(self, folder: str, seconds: float) -> list[Finding]:
        """Return what the check finds, unless the package that it needs is absent."""
        if self.needs and find_spec(self.needs) is None:
            return [Finding(self.subject, "absent", f"not installed: {self.without}", _cuda())]
        return list(self.find(folder, seconds))


CHECKS: dict[str, Check] = {}

_BLOCK, _LARGEST = 8 << 20, 2 << 30  # of the file that measures a disk
_SLOW_DISK = 200e6  # bytes per second: below, graphs are read more slowly than rows are parsed
_LITTLE_DISK = 10 << 30
_RANK = """
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE, "its thread level is not multiple"
# Under an mpiexec of another MPI each process would be its own world.
assert MPI.COMM_WORLD.allreduce(1) == 2, f"a world of {MPI.COMM_WORLD.size}, not of 2 ranks"
"""


def check(subject: str, seconds: float, remedy: str, **more: Any) -> Callable[[Any], None]:
    """Add a function to the checks."""

    def add(find: Any) -> None:
        CHECKS[find.__name__] = Check(subject, seconds, remedy, find, **more)

    return add


@check("machine", 30, "pip install --force-reinstall psutil")
def machine(folder: str, seconds: float) -> Iterator[Finding]:
    """Report cores, memory within limits, and versions."""
    import psutil

    here, there = cores(), os.cpu_count() or 1
    limited = f" of the machine's {there}, by its affinity or control group"
    text = f"{here}{limited if here < there else ''}"
    yield Finding("cores", "ok", text, None, {"cores": str(here)})
    memory, whole = total_memory(), int(psutil.virtual_memory().total)
    text = f"{format_bytes(memory)}, {format_bytes(available_memory())} of it available"
    if memory < whole:
        text += f"; a control group or resource limit keeps the machine's {format_bytes(whole)}"
    enough = available_memory() >= SMALLEST_LIMIT
    remedy = None if enough else "Raise the limit of the container or batch job, or end processes"
    compared = {"memory": f"{memory / 1e9:.0f} GB"}
    yield Finding("memory", "ok" if enough else "warning", text, remedy, compared)
    found = versions()
    text = ", ".join(f"{name} {number}" for name, number in list(found.items())[:8])
    yield Finding("versions", "ok", text, None, found)


@check("Numba", 60, "pip install --force-reinstall numpy numba llvmlite")
def numba(folder: str, seconds: float) -> Iterator[Finding]:
    """Compile and run a function: every job on CPUs does."""
    import numpy as np

    from penstock.kernels.compiled import njit

    total = njit(nogil=True)(lambda x: x.sum())(np.arange(1000.0))
    assert total == 499_500, f"Numba adds 0 to 999 up to {total}, not to 499500"
    yield Finding("Numba", "ok", "compiles for this processor")


@check("GPU", 60, "nvidia-smi; if it fails, load the driver again or reboot")
def gpu(folder: str, seconds: float) -> Iterator[Finding]:
    """Compile and launch a kernel on every GPU that this process sees."""
    from penstock.workers.resources.device import look

    seen = look()
    if not seen.shown:
        text = seen.reason if find_spec("cupy") else "none"
        yield Finding("GPU", "absent", text, None, {"devices": "CPU"})
        return
    if find_spec("cupy") is None:
        text = "CuPy is not installed, so jobs do not use the GPU"
        yield Finding("GPU", "warning", text, _cuda())
        return
    if not seen.used:
        raise RuntimeError(seen.reason)
    import cupy

    names = []
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            twice = cupy.arange(1000, dtype=cupy.float32) * 2  # CuPy compiles both kernels
            assert float(twice.sum()) == 999_000, f"GPU {number} computes wrong numbers"
            name = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
            names.append(f"{name} ({format_bytes(cupy.cuda.runtime.memGetInfo()[1])})")
    found = ", ".join(names)
    text = f"CuPy {cupy.__version__} compiles and launches on {found}; driver {_driver()}"
    yield Finding("GPU", "ok", text, None, {"devices": found})


@check("NCCL", 60, "pip install --force-reinstall nvidia-nccl-cu12, or -cu13", needs="cupy")
def nccl(folder: str, seconds: float) -> Iterator[Finding]:
    """Connect a GPU with itself."""
    import cupy
    from cupy.cuda import nccl

    if not nccl.available:
        text = "not installed: ranks exchange GPU memory through MPI"
        yield Finding("NCCL", "absent", text, _cuda())
        return
    communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    one = cupy.ones(8, dtype=cupy.float32)
    stream = cupy.cuda.get_current_stream()
    communicator.allReduce(
        one.data.ptr, one.data.ptr, 8, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
    )
    stream.synchronize()
    number = int(nccl.get_version())
    yield Finding("NCCL", "ok", f"{number // 10000}.{number // 100 % 100}.{number % 100}")


@check(
    "cuDF",
    90,
    "pip install --force-reinstall cudf-cu12, or -cu13",
    needs="cudf",
    without="etl reads tables on CPUs",
)
def cudf(folder: str, seconds: float) -> Iterator[Finding]:
    """Group a small table on the GPU."""
    import cudf

    table = cudf.DataFrame({"a": [0, 1, 0], "b": [1, 2, 3]})
    sums = table.groupby("a").b.sum().sort_index().to_pandas().tolist()
    assert sums == [4, 2], f"cuDF groups wrongly: {sums}, not [4, 2]"
    yield Finding("cuDF", "ok", cudf.__version__)


@check(
    "KvikIO",
    60,
    "export KVIKIO_COMPAT_MODE=ON",
    needs="kvikio",
    without="data reaches GPUs through host memory",
)
def kvikio(folder: str, seconds: float) -> Iterator[Finding]:
    """Write and read GPU memory by KvikIO, and query whether GPUDirect Storage is used."""
    import cupy
    import kvikio
    import kvikio.cufile_driver
    import kvikio.defaults

    given = cupy.arange(1 << 20, dtype=cupy.int32)
    got = cupy.empty_like(given)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".penstock-doctor-") as own:
        with kvikio.CuFile(Path(own, "gpu"), "w") as writing:
            writing.write(given)
        with kvikio.CuFile(Path(own, "gpu"), "r") as reading:
            reading.read(got)
    assert bool((given == got).all()), "KvikIO does not read what it wrote"
    direct = bool(kvikio.cufile_driver.get("is_gds_available"))
    if direct and not kvikio.defaults.is_compat_mode_preferred():
        yield Finding("KvikIO", "ok", f"{kvikio.__version__}, GPUDirect Storage")
        return
    text = f"{kvikio.__version__}, without GPUDirect Storage: through host memory"
    remedy = "modprobe nvidia-fs, with nvidia-gds installed and KVIKIO_COMPAT_MODE unset"
    yield Finding("KvikIO", "absent", text, remedy)


@check("MPI", 60, f"{pip_install('mpich')}, or load your site's MPI module")
def mpi(folder: str, seconds: float) -> Iterator[Finding]:
    """Find the MPI that mpi4py loads and its mpiexec, and start two ranks that add up."""
    from penstock.cluster.mpi import mpiexec
    from penstock.cluster.mpi.launcher import find_launcher, loaded_library
    from penstock.errors import MissingExtra

    try:
        library = loaded_library()
    except MissingExtra as error:
        text = f"mpi4py finds no MPI library: {error.got}"
        yield Finding("MPI", "absent", text, pip_install("mpich"))
        return
    launcher = find_launcher(None, library)
    yield Finding("MPI", "ok", f"{library}; {launcher}")
    root = os.geteuid() == 0
    env = mpiexec.launch_environment(launcher, os.environ, root=root, library=library)
    command = mpiexec.launch_command(
        launcher,
        [sys.executable, "-P", "-c", _RANK],
        ranks=2,
        hosts=None,
        exported=mpiexec.exported_names(env),
    )
    began = time.perf_counter()
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, restore_signals=False
    )
    text = f"two ranks started and added up in {time.perf_counter() - began:.1f} s"
    if result.returncode == 0:
        yield Finding("gangs", "ok", text)
        return
    lines = (result.stderr + result.stdout).strip().splitlines() or [""]
    text = f"mpiexec exits with {result.returncode}: {lines[-1]}"
    yield Finding("gangs", "broken", text, "mpiexec -n 2 python -c 'from mpi4py import MPI'")


@check("disk", 30, "Name another folder, in which files can be written")
def disk(folder: str, seconds: float) -> Iterator[Finding]:
    """Report kind, free space, bandwidth and file locks of the disk below a folder."""
    from penstock.workers.resources.storage import storage_speed

    free, slow = free_disk(Path(folder)), False
    text = f"{folder}: {storage_speed(Path(folder)).name.lower()}, {format_bytes(free)} free"
    if seconds and free > 10 * _BLOCK:
        write, read, direct = _bandwidth(folder, min(_LARGEST, free // 10), seconds / 2)
        way = "with O_DIRECT" if direct else "without O_DIRECT, which it does not have"
        text += f"; writes {format_bytes(write)}/s, reads {format_bytes(read)}/s, {way}"
        slow = min(write, read) < _SLOW_DISK
    remedy = "export PENSTOCK_SCRATCH=/a/folder/on/a/faster/disk" if slow else None
    if free < _LITTLE_DISK:
        remedy = f"Free space below {folder}, or name another folder"
    yield Finding("disk", "ok" if remedy is None else "warning", text, remedy)
    if _can_lock(folder):
        yield Finding("file locks", "ok", "of the folder keep others out")
        return
    text = f"files in {folder} cannot be locked, and outputs of two runs would mix"
    remedy = "Name another folder, or mount this one with locks (NFS: without nolock)"
    yield Finding("file locks", "broken", text, remedy)


def _bandwidth(folder: str, most: int, seconds: float) -> tuple[float, float, bool]:
    """Return bytes per second written and read by one thread, and whether past the page cache."""
    import fcntl
    import mmap

    with tempfile.TemporaryFile(dir=folder, buffering=0) as file, mmap.mmap(-1, _BLOCK) as block:
        descriptor, direct = file.fileno(), True
        block.write(os.urandom(_BLOCK))
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
            os.pwrite(descriptor, block, 0)
        except OSError:  # a file system may also take the flag and refuse what is then written
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
            direct = False

        def rate(step: Callable[[int], int], end: int) -> tuple[int, float]:
            at, began = 0, time.perf_counter()
            while at < end and time.perf_counter() - began < seconds:
                at += step(at)
            os.fdatasync(descriptor)
            return at, at / (time.perf_counter() - began)

        written, write = rate(lambda at: os.pwrite(descriptor, block, at), most)
        if not direct:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        _, read = rate(lambda at: os.preadv(descriptor, [block], at), written)
    return write, read, direct


def _can_lock(folder: str) -> bool:
    """Return whether a lock of a file in the folder is refused to a second holder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".penstock-doctor-") as own:
        try:
            held = try_lock(Path(own, "lock"))
        except (OSError, PenstockError):
            return False
        return held is not None and is_locked(Path(own, "lock"))


def _driver() -> str:
    """Return the version of the driver, as nvidia-smi reports it; empty if it does not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip().partition("\n")[0] if result.returncode == 0 else ""


def _cuda() -> str:
    """Return the command that installs what a GPU needs."""
    major = _driver().partition(".")[0]
    # 580 is the first branch of drivers that runs CUDA 13.
    return pip_install("cuda13" if major.isdecimal() and int(major) >= 580 else "cuda12")


def main(name: str, folder: str, seconds: str) -> None:
    """Run a check and print its findings."""
    print(json.dumps([asdict(one) for one in CHECKS[name].findings(folder, float(seconds))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
