"""Whether this worker computes on a GPU, and on which: decided here only."""

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

# The host's driver, if Linux runs under Windows and has no device files.
_WSL_DRIVER = Path("/usr/lib/wsl/lib/libcuda.so.1")

# The settings of the plugins of this process' workers, the latest last; those of one cluster agree.
_asked: list[str] = []

# Threads that prepare this process' GPU, by requested device.
_begun: dict[str, threading.Thread] = {}

# Variables with a rank's number on its host. SLURM's comes last: under an
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
    """The result of a process' search for its GPU.

    used    whether it computes on it
    shown   whether the host has one, used or not
    reason  why it is not used, and the remedy
    """

    host: str
    used: bool
    shown: bool = False
    reason: str = ""
    remedy: str = ""


@cache
def gpu() -> bool:
    """Return whether this worker computes on a GPU: by default if it has one and CuPy.

    ``--device``, else ``penstock.device`` in Dask's configuration (``DASK_PENSTOCK__DEVICE``),
    overrides it: ``cpu``, or ``gpu``, which fails without one, as does ``dataframe.backend: cudf``.
    """
    if _asked:
        return computes_on_gpu(_asked[-1])
    wanted = dask.config.get("penstock.device", "auto")
    if wanted == "auto" and dask.config.get("dataframe.backend", None) == "cudf":
        wanted = "gpu"
    return computes_on_gpu(wanted)


def computes_on_gpu(wanted: str) -> bool:
    """Return whether this process computes on a GPU, if auto, cpu or gpu is ``wanted``.

    ``gpu`` is an error without a usable one.
    """
    if wanted not in _DEVICES:
        raise UsageError("the device is wrong", expected="auto, cpu or gpu", got=repr(wanted))
    if wanted == "cpu":
        return False
    found = look()
    if wanted == "gpu" and not found.used:
        raise MissingExtra(
            f"the device gpu is requested, and {found.host} has no usable one",
            got=found.reason,
            remedy=f"{found.remedy}, or choose the device cpu",
        )
    return found.used


@cache
def look() -> Gpu:
    """Return the GPU of this process and, if it is unusable, the reason."""
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
    except Exception as error:  # this process cannot use a GPU
        reason = f"CuPy cannot {doing}: {_first_line(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            reason = "CuPy is not installed"
    shown, visible = shows_gpu(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown and visible is not None:
        reason += f", with CUDA_VISIBLE_DEVICES={visible}"
    if reason == "CuPy is not installed":
        remedy = f"Install the cuda12 or cuda13 extra: {pip_install('cuda12')}"
    elif shown:
        remedy = "Check that nvidia-smi and python -c 'import cupy' work there"
    else:
        remedy = "Run it on a machine with a GPU"
    return Gpu(host, used=False, shown=shown, reason=reason, remedy=remedy)


def begin(device: str) -> threading.Thread | None:
    """Prepare this process' GPU in a thread, if it will compute on one.

    The driver takes some tenths of a second to make a context, and the compiler to start, both
    without Python: other modules load meanwhile. Errors appear where the GPU is used. Later calls
    return the same thread.

    device  the requested one, as ``ask`` will get it
    """
    wanted = _wanted() if device == "auto" else device
    if wanted == "cpu" or not shows_gpu() or find_spec("cupy") is None:
        return None
    if wanted not in _begun:
        _begun[wanted] = threading.Thread(target=_begin, name="penstock-begin-gpu", daemon=True)
        _begun[wanted].start()
    return _begun[wanted]


def _begin() -> None:
    """Make a context and import CuPy at the same time, then start the compiler."""
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
    """Make the context that CuPy will find: by the driver, without Python's lock."""
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
    """Return an error's first line: its cause's, as CuPy's own is long."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip(" =-") for line in str(error).splitlines()]
    text = next(filter(None, lines), "").rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@cache  # a millisecond
def gpu_identity(number: int) -> str:
    """Return an identity of a GPU of this process that is unique, in containers too."""
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
        return Gpu(socket.gethostname(), used=False, reason="its settings choose the CPU")
    gpu()  # raises if a requested GPU is missing
    return look()


def unused_gpu() -> Gpu | None:
    """Return the GPU that this worker does not use although its host has one; else None.

    None as well if settings choose the CPU.
    """
    if _wanted() == "cpu" or not shows_gpu() or gpu():
        return None
    return look()


def _wanted() -> str:
    return _asked[-1] if _asked else str(dask.config.get("penstock.device", "auto"))


def shows_gpu() -> bool:
    """Return whether this process sees an NVIDIA GPU, without CuPy."""
    count = devices_here()
    if count:
        visible = visible_devices(0, count, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return bool(visible) and not _withheld(count)
    return _WSL_DRIVER.exists()


def _withheld(count: int) -> bool:
    """Return whether the system withholds every GPU from this process, as batch systems do."""
    for number in range(count):
        try:
            os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR))
        except OSError as error:
            if error.errno == errno.EPERM:  # from a control group; file modes give EACCES
                continue
        return False
    return True


def ask(device: str) -> None:
    """Let ``--device`` decide ``gpu()``, unless it is ``auto``, until ``withdraw``."""
    if device != "auto":
        _asked.append(device)
        _decide_again()


def withdraw(device: str) -> None:
    """Undo one ``ask``."""
    if device != "auto":
        _asked.remove(device)
        _decide_again()


def look_again() -> None:
    """Forget the search's result, so that it is repeated."""
    look.cache_clear()
    _begun.clear()
    _decide_again()


def _decide_again() -> None:
    gpu.cache_clear()
    frames.cache_clear()


def to_device(array: AnyArray) -> AnyArray:
    """Return ``array`` on this worker's device: its GPU if it has one."""
    if not gpu():
        return array
    import cupy

    there: DeviceArray = cupy.asarray(array)
    return there


def arrays_of_device() -> Any:
    """Return the array module of this worker's device: CuPy or NumPy."""
    if not gpu():
        return np
    import cupy

    return cupy


def wait_for_gpu() -> None:
    """Return when this thread's GPU has completed all launches."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def has_come(event: Any) -> bool:
    """Return whether a stream has reached an event of CuPy; raise an earlier error.

    ``event.done`` would return False forever for a failed stream.
    """
    import cupy

    status = cupy.cuda.runtime.eventQuery(event.ptr)
    if status not in (0, _NOT_READY):
        raise cupy.cuda.runtime.CUDARuntimeError(status)
    return bool(status == 0)


def to_host(array: AnyArray, out: Array | None = None) -> Array:
    """Return ``array`` as NumPy; a GPU's is copied, to ``out`` if given."""
    found: Array = array.get(out=out) if hasattr(array, "get") else array
    return found


@cache
def frames() -> bool:
    """Return whether tables are read and grouped on this worker's GPU, by cuDF."""
    return gpu() and find_spec("cudf") is not None


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Return a process' rank on its host, from its environment; None if it is not a rank."""
    for name in _LOCAL_RANKS:
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return None


def devices_here() -> int:
    """Return the number of NVIDIA GPUs of this host, without touching CUDA."""
    nodes = Path("/dev").glob("nvidia*")
    return sum(re.fullmatch(r"nvidia\d+", node.name) is not None for node in nodes)


def visible_devices(local_rank: int, count: int, visible: str | None) -> str:
    """Return the CUDA_VISIBLE_DEVICES of a rank: its own device first, then its peers'.

    Its own is ``local_rank`` of the host's ``count`` devices, or of those in ``visible`` (an
    existing CUDA_VISIBLE_DEVICES: numbers, UUIDs or MIG names); if ranks outnumber devices, they
    share them in turn. Must be called before CUDA is touched.
    """
    if visible is None:
        devices = [str(number) for number in range(count)]
    else:
        devices = []
        for name in (part.strip() for part in visible.split(",")):
            # CUDA stops at the first invalid entry: "", -1, or SLURM's NoDevFiles.
            if not re.fullmatch(r"\d+|GPU-\S+|MIG-\S+", name):
                break
            devices.append(name)
    if not devices:
        return ""
    first = local_rank % len(devices)
    return ",".join(devices[first:] + devices[:first])
