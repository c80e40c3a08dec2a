"""SIGTERM and SIGHUP end a command as Ctrl-C does.

Batch systems, ``timeout`` and terminals that close send them. If they cannot be handled at once,
as in a kernel that runs in the main thread, they are heard after it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

# Until then a second Ctrl-C is one too many: it would only interrupt the orderly shutdown.
_CLOSING = 5.0

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)
heard: list[int] = []  # the signals that have ended the command


class Terminated(KeyboardInterrupt):
    """The process was terminated by a signal other than Ctrl-C's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    def __str__(self) -> str:
        return f"ended by {self.number.name}"

    @property
    def exit_code(self) -> int:
        """What a shell makes of the signal."""
        return 128 + self.number


def raise_terminations() -> None:
    """Raise Terminated in the main thread at the first SIGTERM or SIGHUP from now on.

    Whichever signal ends the command, those that follow, of any kind, must not disturb the end:
    ``timeout`` sends two. A signal that is ignored, as SIGHUP is under nohup, stays ignored.
    """

    def tell(number: int, frame: FrameType | None) -> None:
        _end_begins(number)
        raise Terminated(number)

    for each in _NUMBERS:
        if signal.getsignal(each) == signal.SIG_DFL:
            signal.signal(each, tell)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt once."""
    _end_begins(number)
    raise KeyboardInterrupt


def _end_begins(number: int) -> None:
    """Let no further signal interrupt the shutdown; Ctrl-C ends it at once if it takes long."""
    began = time.monotonic()

    def again(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - began > _CLOSING:
            print("penstock: interrupted again, and ended at once", file=sys.stderr, flush=True)
            os._exit(1)

    for each in (signal.SIGINT, *_NUMBERS):
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, again if each == signal.SIGINT else lambda number, frame: None)
    heard.append(number)
    _stop_logging()


def ignore_more() -> None:
    """Ignore these signals after one has ended the command.

    Python gives up its handlers while it ends: another one would be what the process died of.
    """
    if heard:
        for each in (signal.SIGINT, *_NUMBERS):
            signal.signal(each, signal.SIG_IGN)


def _stop_logging() -> None:
    """Silence Dask: lost connections at the end of a process are expected.

    Dask restores its loggers' levels when a cluster closes, and handshakes may fail after that. Its
    callback of the garbage collector fails if the signal arrived in it.
    """
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda what: None
