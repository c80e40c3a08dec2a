"""What runs on a driver: one stage, which is a job of ours, or a user's function in a child."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from penstock.documents import parse_json, with_named_numbers
from penstock.pipelines.flow.python import alone, call_in_child, failure
from penstock.secrets import hide


def run_stage(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order: return the stage's ``report`` or its ``error``, or that it was ``lost``.

    The file ``begun`` is made once: if a driver ends, Dask has another one run its stage again.
    """
    from penstock.pipelines import cli

    try:
        with Path(order["begun"]).open("x") as begun:
            begun.write(str(os.getpid()))
    except FileExistsError:
        return {"lost": True}
    answer: dict[str, Any] = {}

    def carry_out() -> None:
        if order["python"] is not None:
            answer.update(call_in_child(order))
            return
        with alone(order):
            answer["report"] = call_command(order)

    with _logged(Path(order["log"])):
        os.chdir(order["home"])
        hide(order["hidden"])
        cli.guarded(carry_out, lambda error: answer.update(failure(error)))
    if "penstock.workers.plugin" in sys.modules:
        from penstock.workers.plugin import clear_caches

        clear_caches()
    free_memory()
    return answer


@contextmanager
def _logged(log: Path) -> Iterator[None]:
    """Have all that this process writes go to a log."""
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with log.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def free_memory() -> None:
    """Give back what pools hold, so that the next stage has it."""
    import ctypes

    gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def call_command(order: dict[str, Any]) -> Any:
    """Call a command's function as the command line does; return what it reports."""
    from penstock.cluster.spec import ClusterSpec
    from penstock.paths import client_input, path_or_url
    from penstock.pipelines.display import Display
    from penstock.pipelines.flow.document.commands import command_of

    command = command_of(order["job"])
    positional: list[Any] = [path_or_url(one) for one in order["inputs"]]
    if command.listed:
        positional = [[client_input(one) for one in order["inputs"]]]
    named = command.arguments(order["options"])
    if command.out is not None:
        named[command.out] = Path(order["out"])
    elif command.writes:
        positional.append(Path(order["out"]))
    if command.clustered:
        named["cluster"] = ClusterSpec(**order["cluster"])
    plans = command.planned and order.get("plan", False)
    if plans:
        named["plan"] = True
    shown = io.StringIO()
    with redirect_stdout(shown):
        command.function(*positional, **named, output=Display(json=True, quiet=plans))
    return with_named_numbers(parse_json(shown.getvalue())) if shown.getvalue() else {}
