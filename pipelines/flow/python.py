"""A user's functions as stages: imported, bound to their arguments and called in a child process.

    python -P -m penstock.pipelines.flow.python <descriptor of the answer>

The first line of standard input is the order, as JSON. The process ends when that input does, with
all that it has started: it leads a process group of its own.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, Self

from penstock.documents import with_named_numbers
from penstock.errors import PenstockError, UsageError
from penstock.locks import lock
from penstock.paths import path_or_url
from penstock.secrets import hidden, hide, masked
from penstock.system_errors import from_system

_END_SECONDS = 30.0
_GROUP_SECONDS = 2.0
_OLDER_SECONDS = 60.0

# In the process that starts the child


class Child:
    """A process that carries out an order; ``log`` takes what it writes."""

    def __init__(self, order: dict[str, Any], log: IO[bytes]) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait
        number = self._answer.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(number)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[number],
            start_new_session=True,  # Ctrl-C is for the flow, which ends its stages
        )
        self._flow = self._process.stdin
        assert self._flow is not None
        with suppress(BrokenPipeError):
            self._flow.write(json.dumps(order).encode() + b"\n")
            self._flow.flush()

    def wait(self) -> tuple[dict[str, Any], int]:
        """Return its answer, if it gave one, and its exit code."""
        try:
            code = self._process.wait()
        finally:
            self.end()
        _end_group(self._process.pid)
        with self._answer as answer:
            answer.seek(0)
            text = answer.read()
        return (json.loads(text) if text else {}), code

    def end(self) -> None:
        """Have it end by itself."""
        assert self._flow is not None
        with suppress(BrokenPipeError):
            self._flow.close()


class Check:
    """Whether functions are there, and take their arguments; found out while others are started."""

    def __init__(self, orders: list[dict[str, Any]]) -> None:
        self._names = ", ".join(sorted({order["python"] for order in orders}))
        self._child: Child | None = None
        if orders:
            with open(os.devnull, "ab") as nowhere:  # noqa: PTH123 - where modules print to
                self._child = Child({"check": orders, "hidden": hidden()}, nowhere)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._child is not None:
            self._child.end()

    def passed(self) -> None:
        """Raise UsageError if one is not there, or takes other arguments."""
        if self._child is None:
            return
        child, self._child = self._child, None
        found, code = child.wait()
        if "error" in found:
            error = found["error"]
            raise UsageError(error["what"], expected=error["expected"], got=error["got"])
        if code:
            got = f"a process that {_ended(code)}"
            raise UsageError(f"cannot load python: {self._names}", got=got)


def call_in_child(order: dict[str, Any]) -> dict[str, Any]:
    """Call a user's function in a child; return its ``report`` or its ``error``."""
    found, code = Child(order, sys.stderr.buffer).wait()
    if found:
        return found
    raise PenstockError(
        f"the process of stage {order['name']} {_ended(code)} before its function returned",
        remedy=f"See {order['log']}; run the flow again: it resumes",
    )


def _ended(code: int) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"ended with {how}"


def _end_group(group: int) -> None:
    """End processes that a child has left behind, after it has exited.

    What ends by itself, as a tracker of shared memory, is given a moment.
    """
    deadline = time.monotonic() + _GROUP_SECONDS
    while _is_alive(group):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
            return
        time.sleep(0.02)


def _is_alive(group: int) -> bool:
    """Return whether a group has a process that is not a zombie."""
    import psutil

    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    for one in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def failure(error: PenstockError) -> dict[str, Any]:
    """Return the error of a stage as an answer; bad usage is not tried again."""
    return {"error": dict(error.to_dict()), "usage": isinstance(error, UsageError)}


@contextmanager
def alone(order: dict[str, Any]) -> Iterator[None]:
    """Wait until a process has ended that still runs the stage for a flow that was killed."""
    begun = time.monotonic()

    def waiting(_: float) -> None:
        if time.monotonic() > begun + _OLDER_SECONDS:
            raise PenstockError(
                f"stage {order['name']} is still run by a process of a flow that was killed",
                remedy="End that process, then run the flow again",
            )

    held = lock(Path(order["lock"]), waiting)
    try:
        yield
    finally:
        held.release(remove=True)


# In the child


def main(descriptor: int) -> None:
    """Carry out the order of standard input."""
    from penstock.pipelines.signals import ignore_more, raise_terminations

    os.set_inheritable(descriptor, False)
    order = json.loads(_first_line())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise_terminations()
    hide(order["hidden"])
    try:
        answer = _answer(order)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        answer = failure(error)
    except KeyboardInterrupt:
        ignore_more()
        sys.exit(1)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(answer).encode())
    ignore_more()


def _first_line() -> bytes:
    """Return the first line of standard input, at whose end this process ends from then on."""
    flow, line = os.dup(0), b""
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - input of a function, and of children
        os.dup2(nothing.fileno(), 0)
    while not line.endswith(b"\n"):
        if not (read := os.read(flow, 1 << 16)):
            os._exit(1)
        line += read
    threading.Thread(target=_end_with, args=(flow,), daemon=True).start()
    return line


def _end_with(flow: int) -> None:
    while os.read(flow, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    # Code that holds the interpreter's main thread, or catches everything, does not hear that.
    time.sleep(_END_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    # What it prints goes to the log at once: if it hangs or fails, the log shows the progress.
    with redirect_stdout(sys.stderr):
        if "check" in order:
            for one in order["check"]:
                _bound(one)
            return {}
        os.chdir(order["home"])
        function, bound = _bound(order)
        with alone(order):
            found = _called(order["python"], lambda: function(*bound.args, **bound.kwargs))
    if found is not None and not isinstance(found, dict):
        raise UsageError(
            f"python: {order['python']} returned {type(found).__name__}",
            expected="a dict of metrics, or None",
        )
    try:
        made = json.loads(json.dumps(found or {}, default=float))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"python: {order['python']} returned a value that cannot be written as JSON",
            expected="a dict of numbers, texts, lists and dicts",
            got=str(error),
        ) from error
    return {"report": with_named_numbers(made)}


def _bound(order: dict[str, Any]) -> tuple[Callable[..., Any], inspect.BoundArguments]:
    """Return a user's function and its arguments; its module may print and raise as it likes."""
    if order["home"] not in sys.path:
        sys.path.insert(0, order["home"])
    module, _, name = order["python"].partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(
            f"stage {order['name']}: cannot load python: {order['python']}",
            expected=f"a module next to the flow, in {order['home']}, or an installed one",
            got=f"{type(error).__name__}: {error}",
        ) from error
    given = (*map(path_or_url, order["inputs"]), Path(order["out"]))
    try:
        return function, inspect.signature(function).bind(*given, **order["options"])
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"stage {order['name']}: python: {order['python']} cannot be called: {error}",
            got=f"the paths of {len(given) - 1} inputs and of the output, and the options "
            f"{', '.join(order['options']) or '(none)'}",
        ) from error


def _called(name: str, function: Callable[[], Any]) -> Any:
    """Call a user's function; if it raises, the log has its traceback."""
    try:
        return function()
    except PenstockError:
        raise
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        raise PenstockError(
            f"python: {name} called sys.exit({error.code!r})",
            remedy="Raise an error that describes the problem; its traceback is then in the log",
        ) from error
    except Exception as error:
        with suppress(Exception):  # as its __str__ may raise too
            print(masked(traceback.format_exc()), file=sys.stderr, end="")
        raise from_system(error, f" in python: {name}") or PenstockError(
            f"python: {name} raised {type(error).__name__}: {error}",
            remedy="The log of the stage has the traceback",
        ) from error


if __name__ == "__main__":
    main(int(sys.argv[1]))
