"""The daemon that keeps a started cluster until it is stopped.

It holds the cluster's context manager, and with it the scheduler. ``keep`` runs in the daemon;
``launch`` starts one in the background and waits until every worker has connected.
"""

from __future__ import annotations

import json
import os
import pickle
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import psutil
from pydantic import validate_call

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import CREDENTIALS, TOKEN, Registered
from penstock.cluster.daemon.stop import STOP_TIMEOUT, end, end_rest, stop
from penstock.cluster.running import log_tail
from penstock.cluster.security import security
from penstock.cluster.security.credentials import make_credentials
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, PenstockError

if TYPE_CHECKING:
    from types import FrameType

# Before the cluster starts, Python loads its libraries, possibly from a shared disk.
_LOADING = 30.0
_SAY_AFTER = 2.0
_LISTEN_EVERY = 0.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def keep(
    name: str,
    spec: ClusterSpec,
    ready: Callable[[Registered], None],
    *,
    folder: Path | None = None,
    token: str = "",
    scheduler_file: Path | None = None,
    quiet: bool = True,
) -> None:
    """Start a cluster, call ``ready`` when every worker has connected, keep it until SIGTERM or ^C.

    ``folder`` is a draft of its registry entry with the log that this process already writes;
    without it no log exists. ``token`` is in the environment of this process and of all that it
    starts. Unless ``quiet``, it shows who has connected. Must run in the main thread, as the last
    call.
    """
    from penstock.cluster.addresses import dashboard_link
    from penstock.cluster.connect import connect
    from penstock.files import save_json

    entry = registry.this_process(
        name,
        spec.cluster,
        token,
        scheduler_file=str(scheduler_file) if scheduler_file else None,
        temporary=tempfile.mkdtemp(prefix=registry.TEMPORARY),
    )
    draft, failed = folder or registry.draft(), True
    # Until the end of this process.
    os.environ[TOKEN] = entry.token
    tempfile.tempdir = entry.temporary  # so that files can be found if it dies
    try:
        _raise_signals()
        if security(spec) is None and not spec.no_tls:
            # Clients look here as well.
            make_credentials(draft / CREDENTIALS)
            spec = replace(spec, tls=entry.folder / CREDENTIALS)
        entry = replace(
            entry,
            log=str(entry.folder / "log") if folder else None,
            tls=str(spec.tls) if spec.tls else None,
        )
        if (dead := registry.claim(entry, draft)) is not None:
            stop(dead)
        with connect(spec, quiet=quiet) as client:
            entry = replace(
                entry,
                address=client.scheduler.address,
                dashboard=dashboard_link(client.cluster, spec) if client.cluster else None,
                workers=len(client.nthreads()),
            )
            registry.update(entry)
            if scheduler_file is not None:
                save_json(scheduler_file, client.scheduler_info(n_workers=0))
            ready(entry)
            while True:
                # Not signal.pause: a signal that another thread receives would not end it.
                time.sleep(_LISTEN_EVERY)
    except KeyboardInterrupt as signalled:
        failed = False
        if entry.address is None and signal.SIGINT in signalled.args:
            raise
    finally:
        if draft.exists():  # not claimed
            shutil.rmtree(draft, ignore_errors=True)
            registry.remove_temporary(entry)
        else:
            registry.release(entry, keep_log=failed)


def launch(
    name: str,
    spec: ClusterSpec,
    *,
    scheduler_file: Path | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> Registered:
    """Start a daemon in the background and return its entry when every worker has connected.

    An error in the daemon is raised here, with the end of the log as a note. After two seconds,
    ``notify`` is called with what is still missing.
    """
    folder, token = registry.draft(), secrets.token_hex(8)
    order = {
        "name": name,
        "spec": asdict(spec),
        "folder": folder,
        "token": token,
        "scheduler_file": scheduler_file,
    }
    read_end, write_end = os.pipe()
    command = [sys.executable, "-P", "-m", __name__, json.dumps(order, default=str), str(write_end)]
    try:
        with (folder / "log").open("a+b") as log, os.fdopen(read_end, "rb") as answers:
            with os.fdopen(write_end, "wb"):  # afterwards only the daemon holds it
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {TOKEN: token},
                    start_new_session=True,
                    pass_fds=(write_end,),
                )
            try:
                answer = _answer(answers, process, name, spec, notify)
                if isinstance(answer, Registered):
                    return answer
                raise answer
            except BaseException as error:
                _end_launched(process, name, token)
                # By its descriptor: depending on the failure, the file has moved or is removed.
                if lines := log_tail(Path(f"/proc/self/fd/{log.fileno()}")):
                    error.add_note(f"The last lines of the cluster's log:\n{lines}")
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(
    answers: BinaryIO,
    process: subprocess.Popen[bytes],
    name: str,
    spec: ClusterSpec,
    notify: Callable[[str], None],
) -> Registered | PenstockError:
    """Return the daemon's answer, or the error that it reports; raise if it does not answer."""
    count = {None: "the workers", 1: "1 worker"}.get(spec.workers, f"{spec.workers} workers")
    limit = spec.start_timeout + _LOADING
    deadline, received, notified = time.monotonic() + limit, b"", False
    while True:  # until it closes the pipe; a stopped daemon does not
        left = deadline - time.monotonic()
        if select.select([answers], [], [], max(min(left, left if notified else _SAY_AFTER), 0))[0]:
            if not (piece := os.read(answers.fileno(), 1 << 16)):
                break
            received += piece
        elif left <= 0:
            raise ClusterError(
                f"cluster {name!r} is not ready after {limit:.0f} s",
                expected=f"{count} within {spec.start_timeout:g} s",
                remedy="Raise --start-timeout; -v shows the end of its log",
            )
        elif not notified:
            notified = True
            notify(
                f"waiting for {count} of cluster {name} ({spec.cluster}), up to "
                f"{spec.start_timeout:g} s"
            )
    answer, trace = pickle.loads(received) if received else (None, "")
    if isinstance(answer, Registered):
        return answer
    code = 0
    # The daemon closes its cluster by itself; ``_end_launched`` ends one that hangs.
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(STOP_TIMEOUT)
    if isinstance(answer, PenstockError):
        answer.add_note(f"In the daemon of the cluster:\n{trace.rstrip()}")
        return answer
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return ClusterError(
        f"the daemon of cluster {name!r} exited before every worker had connected",
        got=how if code else "it was stopped",
        remedy="-v shows the end of its log" if code else None,
    )


def _end_launched(process: subprocess.Popen[bytes], name: str, token: str) -> None:
    """End a daemon that failed, so that only its log remains."""
    if process.poll() is None:
        end(psutil.Process(process.pid))
        process.wait()
    end_rest(token)
    there = registry.find(name)
    if there is not None and there.pid == process.pid:
        registry.release(there, keep_log=True)


def _raise_signals() -> None:
    """Raise KeyboardInterrupt(number) at the first signal to end; ignore later ones."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    for each in _SIGNALS:
        signal.signal(each, on_signal)


def main(order: str, write_end: int) -> None:
    """Keep the cluster of ``order`` (JSON), and report its start through the pipe ``write_end``."""
    os.set_inheritable(write_end, False)  # the pipe ends with this process, not with its workers

    def report(answer: Registered | PenstockError, trace: str = "") -> None:
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(pickle.dumps((answer, trace)))

    def ready(entry: Registered) -> None:
        try:
            report(entry)
        except BrokenPipeError:
            # The caller exited, so no process knows of the cluster.
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        # From JSON's texts to the types that ``keep`` takes.
        validate_call(keep)(ready=ready, **json.loads(order))
    except PenstockError as error:
        report(error, traceback.format_exc())
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
