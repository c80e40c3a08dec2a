"""Whether this worker computes on a GPU, and on which: decided once, here, and nowhere else."""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.caches import keep_cupy_kernels
from penstock.errors import MissingExtra, UsageError, pip_install

_DEVICES = ("auto", "cpu", "gpu")

_NOT_READY = 600  # cudaErrorNotReady

# The driver of the host, where Linux runs under Windows and has no files of devices.
_WSL_DRIVER = Path("/usr/lib/wsl/lib/libcuda.so.1")

# The settings of the plugins of the workers in this process, the latest last; those of one cluster
# have the same.
_asked: list[str] = []

# What begins with the GPU of this process, by what was asked for.
_begun: dict[str, threading.Thread] = {}

# Where a starter of ranks says which of its host a process is. That of SLURM comes last: under an
# mpiexec inside a batch step it belongs to the step, and is 0 for every rank.
_LOCAL_RANKS = (
    "MPI_LOCALRANKID",  # MPICH, Intel MPI
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",  # Cray
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)


@dataclass(frozen=True)
class Gpu:
    """What came of a process' look for its GPU.

    used    whether it computes on it
    shown   whether the host shows one, be it used or not
    reason  why it is not used, and the remedy
    """

    host: str
    used: bool
    shown: bool = False
    reason: str = ""
    remedy: str = ""


@cache
def gpu() -> bool:
    """Return whether this worker computes on a GPU: it does if it has one and CuPy to use it.

    ``--device``, or else ``penstock.device`` in Dask's configuration (``DASK_PENSTOCK__DEVICE``),
    says otherwise: ``cpu``, or ``gpu``, which is an error without one; so does
    ``dataframe.backend: cudf``.
    """
    if _asked:
        return computes_on_gpu(_asked[-1])
    wanted = dask.config.get("penstock.device", "auto")
    if wanted == "auto" and dask.config.get("dataframe.backend", None) == "cudf":
        wanted = "gpu"
    return computes_on_gpu(
        wanted,
        name="penstock.device in Dask's configuration",
        asker="Dask's configuration (penstock.device or dataframe.backend)",
        otherwise="set penstock.device to cpu",
    )


def computes_on_gpu(
    wanted: str,
    *,
    name: str = "option --device",
    asker: str = "--device gpu",
    otherwise: str = "use --device cpu",
) -> bool:
    """Return whether this process computes on a GPU if ``wanted`` is asked for: auto, cpu or gpu.

    ``gpu`` is an error where there is none that can be used; the names are for its words.
    """
    if wanted not in _DEVICES:
        raise UsageError(name, expected="auto, cpu or gpu", got=repr(wanted))
    if wanted == "cpu":
        return False
    found = look()
    if wanted == "gpu" and not found.used:
        raise MissingExtra(
            f"{asker} asks for a GPU, and {found.host} has none that can be used",
            got=found.reason,
            remedy=f"{found.remedy}, or {otherwise}",
        )
    return found.used


@cache
def look() -> Gpu:
    """Return the GPU of this process and, where it cannot be used, the reason."""
    host = socket.gethostname()
    doing = "be imported"
    try:
        import cupy

        keep_cupy_kernels()
        doing = "use a GPU"
        if cupy.cuda.runtime.getDeviceCount() > 0:
            doing = "compile kernels"
            cupy.cuda.nvrtc.getVersion()  # loads the compiler; without it no kernel would run
            return Gpu(host, used=True, shown=True)
        reason = "CuPy finds no GPU"
    except Exception as error:  # whatever it is, this process cannot use a GPU
        reason = f"CuPy cannot {doing}: {_first_line(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            reason = "CuPy is not installed"
    shown, visible = shows_gpu(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown and visible is not None:
        reason += f", with CUDA_VISIBLE_DEVICES={visible}"
    if reason == "CuPy is not installed":
        remedy = f"Install the cuda12 or cuda13 extra: {pip_install('cuda12')}"
    elif shown:
        remedy = "See whether nvidia-smi and python -c 'import cupy' work there, and mend it"
    else:
        remedy = "Run it on a machine with a GPU"
    return Gpu(host, used=False, shown=shown, reason=reason, remedy=remedy)


def begin(device: str) -> threading.Thread | None:
    """Have this process begin with its GPU in a thread, if it will compute on one.

    The driver takes some tenths of a second to make a context, and the compiler to start, and they
    need Python for none of it: others may be imported meanwhile. What goes wrong is said where the
    GPU is used. Who asks again is given the same thread.

    device  what was asked for, as ``ask`` will get it
    """
    wanted = _wanted() if device == "auto" else device
    if wanted == "cpu" or not shows_gpu() or find_spec("cupy") is None:
        return None
    if wanted not in _begun:
        _begun[wanted] = threading.Thread(target=_begin, name="penstock-begin-gpu", daemon=True)
        _begun[wanted].start()
    return _begun[wanted]


def _begin() -> None:
    """Make a context and import CuPy, both at once, then start the compiler."""
    made: list[bool] = []
    making = threading.Thread(target=lambda: made.append(_make_context()), daemon=True)
    making.start()
    with suppress(Exception):
        import cupy  # noqa: F401

        making.join()
        if any(made):
            from penstock.kernels.cuda.module import start_compiler

            start_compiler()
    making.join()


def _make_context() -> bool:
    """Make the context that CuPy will find: by the driver, which asks nothing of Python."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)


def _first_line(error: BaseException) -> str:
    """Return what an error says in a line: that of its cause, as CuPy tells its own at length."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip(" =-") for line in str(error).splitlines()]
    text = next(filter(None, lines), "").rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@cache  # a millisecond
def gpu_identity(number: int) -> str:
    """Return what tells a GPU of this process from all others, in containers too."""
    import cupy

    found = cupy.cuda.runtime.getDeviceProperties(number)
    uuid = found.get("uuid", b"").hex()
    if uuid.strip("0"):
        return str(uuid)
    bus_id = ":".join(str(found[f"pci{part}ID"]) for part in ("Domain", "Bus", "Device"))
    return f"{bus_id}@{socket.gethostname()}"[:80]


def this_gpu() -> Gpu:
    """Return the GPU of this worker, or why it computes on the CPU."""
    if _wanted() == "cpu":
        return Gpu(socket.gethostname(), used=False, reason="its settings say to use the CPU")
    gpu()  # which raises where a GPU was asked for and there is none
    return look()


def unused_gpu() -> Gpu | None:
    """Return the GPU that this worker does not use though its host shows one; else None.

    Where settings say that a worker uses its CPU there is nothing to say.
    """
    if _wanted() == "cpu" or not shows_gpu() or gpu():
        return None
    return look()


def _wanted() -> str:
    return _asked[-1] if _asked else str(dask.config.get("penstock.device", "auto"))


def shows_gpu() -> bool:
    """Return whether this host shows an NVIDIA GPU to this process, asked without CuPy."""
    count = devices_here()
    if count:
        visible = visible_devices(0, count, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return bool(visible) and not _withheld(count)
    return _WSL_DRIVER.exists()


def _withheld(count: int) -> bool:
    """Return whether the system keeps this process from every GPU, as batch systems do."""
    for number in range(count):
        try:
            os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR))
        except OSError as error:
            if error.errno == errno.EPERM:  # a control group's word; that of a mode is EACCES
                continue
        return False
    return True


def ask(device: str) -> None:
    """Have ``gpu()`` say what ``--device`` says, ``auto`` aside, until ``withdraw``."""
    if device != "auto":
        _asked.append(device)
        _decide_again()


def withdraw(device: str) -> None:
    """Take one ``ask`` back."""
    if device != "auto":
        _asked.remove(device)
        _decide_again()


def look_again() -> None:
    """Forget what was found, so that it is looked for again."""
    look.cache_clear()
    _begun.clear()
    _decide_again()


def _decide_again() -> None:
    gpu.cache_clear()
    frames.cache_clear()


def to_device(array: AnyArray) -> AnyArray:
    """Return ``array`` where this worker computes: on its GPU if it has one."""
    if not gpu():
        return array
    import cupy

    there: DeviceArray = cupy.asarray(array)
    return there


def arrays_of_device() -> Any:
    """Return the module whose arrays lie where this worker computes: CuPy or NumPy."""
    if not gpu():
        return np
    import cupy

    return cupy


def wait_for_gpu() -> None:
    """Return when this thread's GPU has done what was launched on it."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def has_come(event: Any) -> bool:
    """Return whether a stream has come to an event of CuPy; raise what went wrong before it.

    ``event.done`` would say False for ever of a stream that has failed.
    """
    import cupy

    status = cupy.cuda.runtime.eventQuery(event.ptr)
    if status not in (0, _NOT_READY):
        raise cupy.cuda.runtime.CUDARuntimeError(status)
    return bool(status == 0)


def to_host(array: AnyArray, out: Array | None = None) -> Array:
    """Return ``array`` as NumPy; from a GPU it is copied, to ``out`` where that is given."""
    found: Array = array.get(out=out) if hasattr(array, "get") else array
    return found


@cache
def frames() -> bool:
    """Return whether tables are read and grouped on this worker's GPU, by cuDF."""
    return gpu() and find_spec("cudf") is not None


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Return which of its host's ranks a process with this environment is; None: it is no rank."""
    for name in _LOCAL_RANKS:
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return None


def devices_here() -> int:
    """Return how many NVIDIA GPUs this host shows, without touching CUDA."""
    nodes = Path("/dev").glob("nvidia*")
    return sum(re.fullmatch(r"nvidia\d+", node.name) is not None for node in nodes)


def visible_devices(local_rank: int, count: int, visible: str | None) -> str:
    """Return the CUDA_VISIBLE_DEVICES of a rank: its own device first, its peers' after it.

    Own is ``local_rank`` of the host's ``count`` devices, or of those that ``visible`` (a
    CUDA_VISIBLE_DEVICES that is set already: numbers, UUIDs or MIG names) lets this process see;
    where there are more ranks than devices they take turns. To be called before CUDA is touched.
    """
    if visible is None:
        devices = [str(number) for number in range(count)]
    else:
        devices = []
        for name in (part.strip() for part in visible.split(",")):
            # CUDA stops at the first that cannot be one: "", -1, or the NoDevFiles of SLURM.
            if not re.fullmatch(r"\d+|GPU-\S+|MIG-\S+", name):
                break
            devices.append(name)
    if not devices:
        return ""
    first = local_rank % len(devices)
    return ",".join(devices[first:] + devices[:first])
