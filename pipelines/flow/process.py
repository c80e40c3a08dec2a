"""The process of one stage: a Penstock command, or a user's function, with its order in a file.

    python -P -m penstock.pipelines.flow.process order.json <alive>

The order holds the command's words, inputs, options and cluster. The command's report is written to
the order's ``result`` as JSON, messages to standard error, which is the stage's log. Standard
input is a pipe that the flow's process keeps open: if it closes, the flow has exited, and this
process exits, with all that it has started: it leads a process group of its own.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from penstock.documents import parse_json, with_named_numbers
from penstock.errors import PenstockError, UsageError
from penstock.files import save_json
from penstock.secrets import hide, masked
from penstock.system_errors import from_system

_END_SECONDS = 30.0


def main(order_file: str) -> None:
    """Carry out an order, and exit as a command does."""
    from penstock.pipelines import cli
    from penstock.pipelines.signals import ignore_more, raise_terminations

    flow = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - input of a function, and of children
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_end_with_flow, args=(flow,), daemon=True).start()
    raise_terminations()
    order = parse_json(Path(order_file).read_bytes())
    hide(order["hidden"])
    failed = Path(order["failed"])
    code = cli.guarded(lambda: carry_out(order), lambda error: save_json(failed, error.to_dict()))
    ignore_more()
    sys.exit(code)


def _end_with_flow(flow: int) -> None:
    while os.read(flow, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    # Code that holds the interpreter's main thread, or catches everything, does not hear that.
    time.sleep(_END_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def carry_out(order: dict[str, Any]) -> None:
    """Run the command or function of an order, and keep what it reports."""
    result = Path(order["result"])
    result.unlink(missing_ok=True)
    shown = io.StringIO()
    try:
        with redirect_stdout(shown):
            if order.get("python"):
                shown.write(json.dumps(call_python(order)))
            else:
                call_command(order)
    finally:
        # A job that failed in part has reported all the same.
        body = _parsed(shown.getvalue())
        if body is not None:
            save_json(result, with_named_numbers(body))
        elif shown.getvalue():
            print(shown.getvalue(), file=sys.stderr)


def _parsed(text: str) -> Any:
    """Return the JSON that a command printed, or None."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def call_command(order: dict[str, Any]) -> None:
    """Call a command's function as the command line does."""
    gc.set_threshold(50_000)  # imports are faster by a tenth, as in penstock/__main__.py
    from penstock.cluster.spec import ClusterSpec
    from penstock.paths import client_input
    from penstock.pipelines.display import Display
    from penstock.pipelines.flow.document.commands import command_of

    command = command_of(order["job"])
    positional: list[Any] = [Path(one) for one in order["inputs"]]
    if command.listed:
        convert: Any = client_input if command.kind is str else Path
        positional = [[convert(one) for one in order["inputs"]]]
    named = command.arguments(order["options"])
    if command.out is not None:
        named[command.out] = Path(order["out"])
    elif command.writes:
        positional.append(Path(order["out"]))
    if command.clustered:
        named["cluster"] = ClusterSpec(**order["cluster"])
    if command.planned and order.get("plan"):
        named["plan"] = True
    command.function(
        *positional, **named, output=Display(json=True, quiet=order.get("plan", False))
    )


def call_python(order: dict[str, Any]) -> Any:
    """Call a user's function with the paths of its inputs, its output, and the stage's options."""
    sys.path.insert(0, order["home"])
    # Its output goes to the log at once: if it hangs or fails, the log shows the progress.
    with redirect_stdout(sys.stderr):
        found = _called(order["python"], lambda: _loaded(order)(
            *map(Path, order["inputs"]), Path(order["out"]), **order["options"]
        ))  # fmt: skip
    if found is not None and not isinstance(found, dict):
        raise UsageError(
            f"python: {order['python']} returned {type(found).__name__}",
            expected="a dict of metrics, or None",
        )
    try:
        return json.loads(json.dumps(found or {}, default=float))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"python: {order['python']} returned a value that cannot be written as JSON",
            expected="a dict of numbers, texts, lists and dicts", got=str(error),
        ) from error  # fmt: skip


def _loaded(order: dict[str, Any]) -> Callable[..., Any]:
    """Return a user's function; its module may print and raise as the function may."""
    module, _, name = order["python"].partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"cannot load python: {order['python']}",
            expected=f"a module next to the flow, in {order['home']}, or an installed one",
            got=f"{type(error).__name__}: {error}",
        ) from error
    return found


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
        if isinstance(error, FileExistsError):
            raise PenstockError(
                f"python: {name} found something at its output path", got=str(error.filename),
                remedy="The output of an earlier run still exists when a function is called: "
                "have it continue from that, or begin with shutil.rmtree(out, ignore_errors=True)",
            ) from error  # fmt: skip
        raise from_system(error, f" in python: {name}") or PenstockError(
            f"python: {name} raised {type(error).__name__}: {error}",
            remedy="The log of the stage has the traceback",
        ) from error


if __name__ == "__main__":
    main(sys.argv[1])
