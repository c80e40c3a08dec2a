"""Numba's ``njit``, with results kept on disk if possible.

Numba keeps them next to the source, or in a user's folder, and raises if it can write to neither.
Here they then go to the folder of ``penstock.caches``, or are compiled in every process.
"""

from __future__ import annotations

import fcntl
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache, wraps
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.event import Listener, install_listener
from numba.core.runtime import rtsys
from numba.core.typeinfer import register_dispatcher

from penstock import __version__
from penstock.arrays import frozen_view
from penstock.caches import cache_folder, can_write, private_folder

F = TypeVar("F", bound=Callable[..., Any])
_MOST_WAIT = 120.0  # seconds to wait for another process' compilation
_POLL = 0.01


def njit(*signatures: Any, cache: bool = False, nogil: bool = False, **options: Any) -> Any:
    """Compile like ``numba.njit``, without unneeded wrappers.

    nogil  Python calls it. Without it only kernels may, unless it is inlined: a call from Python
           crashes. The wrapper takes half of the compilation of a small function.
    """
    inner = not nogil and "inline" not in options
    options |= {"nogil": nogil, "no_cpython_wrapper": inner, "no_cfunc_wrapper": True}

    def compiled(function: Callable[..., Any]) -> Any:
        folder = _elsewhere(Path(inspect.getfile(function)).parent) if cache else ""
        if folder == "":
            return numba.njit(*signatures, **options)(function)
        kernel = numba.njit(**options)(function)
        if hasattr(kernel, "py_func"):  # unless NUMBA_DISABLE_JIT is set
            named = config.CACHE_DIR
            config.CACHE_DIR = named if folder is None else folder
            try:
                kernel._cache = _Cache(function)
            finally:
                config.CACHE_DIR = named  # other functions keep their folder
            _compile(kernel, signatures)
        return kernel

    return compiled


def entry(*written: str, **options: Any) -> Callable[[F], F]:
    """Compile a kernel for calls from Python, which may pass mapped files and numbers of 64 bits.

    Arrays, also in tuples, are passed as read-only views, as Numba compiles again for each kind;
    numbers of ``uint64`` as such.

    written  the arrays that the kernel writes, which are passed as they are
    """

    def compiled(function: F) -> F:
        kernel = njit(cache=True, nogil=True, **options)(function)
        parameters = inspect.signature(function).parameters
        defaults = {name: one.default for name, one in parameters.items()}
        wide = [name for name, one in parameters.items() if one.annotation == "uint64"]

        def ready(name: str, value: Any) -> Any:
            if name in wide:
                return np.uint64(value)
            if isinstance(value, Enum):
                return value.value
            if isinstance(value, tuple):
                return tuple(ready(name, each) for each in value)
            is_read = isinstance(value, np.ndarray) and name not in written
            return frozen_view(value) if is_read else value

        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            if len(given) < len(defaults):
                every = defaults | named
                given += tuple(every[name] for name in [*defaults][len(given) :])
            return kernel(*map(ready, defaults, given))

        return cast("F", call)

    return compiled


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, which loads kernels without modules that only compiling needs.

    Numba first imports everything it can compile, including SciPy's linear algebra: 0.3 s per
    process. Only a compilation does that here.
    """

    _lock: IO[str] | None = None  # held while this process compiles the kernel

    def load_overload(self, signature: Any, context: Any) -> Any:
        found = self._load(signature, context)
        if found is None and self.take(_MOST_WAIT):
            found = self._load(signature, context)  # another process may have compiled it
        if found is not None:
            self.give_back()
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        super().save_overload(signature, data)
        self.give_back()

    def take(self, seconds: float) -> bool:
        """Wait until no other process compiles the kernel; return False after ``seconds``."""
        if self._lock is not None:
            return True
        with suppress(OSError):  # without a lock file the others do not wait
            self._impl.locator.ensure_cache_path()
            lock = (Path(self._cache_path) / f"{self._impl.filename_base}.lock").open("w")
            if not _locked(lock, seconds):
                lock.close()
                return False
            self._lock = lock
        return True

    def give_back(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                Path(self._lock.name).unlink()
            self._lock.close()
            self._lock = None

    def _load(self, signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        with self._guard_against_spurious_io_errors():
            try:
                return self._load_overload(signature, context)
            except (AttributeError, ImportError):
                # The index names types, and is read before its source version is compared: one of
                # these types no longer exists.
                self.flush()
        return None


def _locked(file: IO[str], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL)
        else:
            return True


def compile_unless_busy(kernel: Any, signature: tuple[Any, ...]) -> None:
    """Compile a kernel for a signature, unless another process is compiling it."""
    cache = kernel._cache
    if isinstance(cache, _Cache) and cache.take(0):
        try:
            kernel.compile(signature)
        finally:
            cache.give_back()


def _compile(kernel: Any, signatures: Sequence[Any]) -> None:
    given = signatures[0] if signatures and isinstance(signatures[0], list) else signatures
    if given:
        with register_dispatcher(kernel):
            for signature in given:
                kernel.compile(signature)
            kernel.disable_compile()


@contextmanager
def compiling() -> Iterator[list[float]]:
    """Give a list of the seconds of each compilation in the block, without loads from a cache."""
    timer = _Timer()
    with install_listener("numba:compile", timer):
        yield timer.seconds


class _Timer(Listener):  # type: ignore[misc]
    """Times compilations, nested ones as part of the outer one; Numba compiles one at a time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._depth, self._started = 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._started = time.monotonic()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds.append(time.monotonic() - self._started)


@cache
def _elsewhere(source: Path) -> str | None:
    """Return the folder for compiled functions of a folder of sources.

    None: Numba's own choice, ``NUMBA_CACHE_DIR`` or next to the source; "": none.
    """
    if (config.CACHE_DIR and can_write(Path(config.CACHE_DIR))) or can_write(
        source / "__pycache__"
    ):
        return None
    folder = cache_folder()
    # Code of other versions may call changed functions: Numba checks only a function's own file.
    if folder is None or not private_folder(folder := folder / f"numba-{__version__}"):
        return ""
    return str(folder)
