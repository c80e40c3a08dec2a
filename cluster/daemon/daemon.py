"""The process that keeps a started cluster until it is told to stop.

It holds the cluster's context manager, and with it the scheduler. ``keep`` is what it does;
``launch`` starts one in the background and waits until every worker has arrived.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from penstock import errors
from penstock.cluster.credentials import make_credentials
from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import CREDENTIALS, TOKEN, Registered
from penstock.cluster.daemon.stop import STOP_TIMEOUT, end, end_rest
from penstock.cluster.security import security
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, PenstockError

# Before a cluster starts to start, Python and its libraries are loaded, maybe from a shared disk.
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
    scheduler_file: Path | None = None,
    quiet: bool = True,
) -> None:
    """Start a cluster, call ``ready`` when every worker has arrived, keep it until SIGTERM or ^C.

    ``folder`` is a draft of its place in the register with a log in it, where this process writes
    already; left away, there is no log. Unless ``quiet``, it shows who has arrived. Runs in the
    main thread.
    """
    from penstock.cluster.addresses import dashboard_link
    from penstock.cluster.connect import connect

    entry = _claimed(name, spec, folder, scheduler_file)
    if entry.tls is not None:
        spec = replace(spec, tls=Path(entry.tls))
    os.environ[TOKEN] = entry.token  # for all processes to come
    arrived = failed = False
    try:
        with (
            _told_to_stop(),
            _temporary_files_in(Path(entry.temporary)),
            connect(spec, quiet=quiet) as client,
        ):
            entry = replace(
                entry,
                address=client.scheduler.address,
                dashboard=dashboard_link(client.cluster, spec) if client.cluster else None,
                workers=len(client.nthreads()),
            )
            registry.update(entry)
            if entry.scheduler_file is not None:
                _write_scheduler_file(Path(entry.scheduler_file), client)
            arrived = True
            ready(entry)
            while True:
                # Not signal.pause: a signal that another thread takes would not end it.
                time.sleep(_LISTEN_EVERY)
    except _Told as told:
        if told.number == signal.SIGINT and not arrived:
            raise KeyboardInterrupt from None
    except BaseException:
        failed = True
        raise
    finally:
        registry.remove_temporary(entry)
        registry.release(entry, keep_log=failed)


def launch(
    name: str,
    spec: ClusterSpec,
    *,
    scheduler_file: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Registered:
    """Start a daemon in the background and return its entry when every worker has arrived.

    What goes wrong there is raised here, with the end of the log as a note. ``say`` is told what
    is waited for once that takes longer than two seconds.
    """
    # The daemon's claim decides; this only saves the start of one that must fail.
    there = registry.find(name)
    if there is not None and there.alive():
        raise registry.taken(there)
    folder = registry.draft()
    log = (folder / "log").open("a+b")
    order = {
        "name": name,
        "spec": asdict(spec),
        "folder": folder,
        "scheduler_file": scheduler_file,
    }
    command = [sys.executable, "-P", "-m", __name__, json.dumps(order, default=str)]
    hear, tell = os.pipe()
    try:
        with log, os.fdopen(hear, "rb") as answers:
            try:
                process = subprocess.Popen(
                    [*command, str(tell)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={key: value for key, value in os.environ.items() if key != TOKEN},
                    start_new_session=True,
                    pass_fds=(tell,),
                )
            finally:
                os.close(tell)
            patience = 0.0
            answer: Registered | BaseException
            try:
                answer = _answer(answers, process, name, spec, say)
                # After an error it is closing what it had started.
                patience = STOP_TIMEOUT
            except BaseException as error:
                answer = error
            if isinstance(answer, Registered):
                return answer
            _end_launched(process, name, patience)
            # By its descriptor: where it stands by now, if anywhere, depends on what went wrong.
            if lines := registry.tail(Path(f"/proc/self/fd/{log.fileno()}")):
                answer.add_note(f"The last lines of the cluster's log:\n{lines}")
            raise answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _claimed(
    name: str, spec: ClusterSpec, folder: Path | None, scheduler_file: Path | None
) -> Registered:
    entry = registry.this_process(
        name,
        spec.cluster,
        tls=str(spec.tls) if spec.tls else None,
        scheduler_file=str(scheduler_file) if scheduler_file else None,
        temporary=tempfile.mkdtemp(prefix=registry.TEMPORARY),
    )
    draft = folder or registry.draft()
    if folder is not None:
        entry = replace(entry, log=str(entry.folder / "log"))
    try:
        if security(spec) is None and not spec.no_tls:
            # For clients too, who find the cluster here.
            make_credentials(draft / CREDENTIALS)
            entry = replace(entry, tls=str(entry.folder / CREDENTIALS))
        dead = registry.claim(entry, draft)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        registry.remove_temporary(entry)
        raise
    if dead is not None:
        end_rest(dead)
        registry.remove_temporary(dead)
    return entry


def _answer(
    answers: BinaryIO,
    process: subprocess.Popen[bytes],
    name: str,
    spec: ClusterSpec,
    say: Callable[[str], None],
) -> Registered | PenstockError:
    """Return what the daemon reports, or what it failed with; raise if that does not come."""
    count = {None: "the workers", 1: "1 worker"}.get(spec.workers, f"{spec.workers} workers")
    limit = spec.start_timeout + _LOADING
    if not select.select([answers], [], [], min(_SAY_AFTER, limit))[0]:
        say(
            f"waiting for {count} of cluster {name} ({spec.cluster}), up to "
            f"{spec.start_timeout:g} s"
        )
        if not select.select([answers], [], [], max(limit - _SAY_AFTER, 0))[0]:
            raise ClusterError(
                f"cluster {name!r} is not ready after {limit:.0f} s",
                expected=f"{count} within {spec.start_timeout:g} s",
                remedy="Give it longer with --start-timeout; -v shows the end of its log",
            )
    line = answers.readline()
    if not line:
        code = process.wait(STOP_TIMEOUT)
        how = f"it was killed by signal {-code}" if code < 0 else f"exit code {code}"
        return ClusterError(
            f"the daemon of cluster {name!r} ended before every worker had arrived",
            got=how if code else "it was told to stop",
            remedy="-v shows the end of its log" if code else None,
        )
    answer = json.loads(line)
    return _error(**answer) if "error" in answer else Registered(**answer["started"])


def _error(error: dict[str, Any], trace: str) -> PenstockError:
    kind = getattr(errors, error.pop("error"), PenstockError)
    ours: PenstockError = kind(error.pop("what"), **error)
    ours.add_note(f"In the process that keeps the cluster:\n{trace.rstrip()}")
    return ours


def _end_launched(process: subprocess.Popen[bytes], name: str, patience: float) -> None:
    """See to it that a daemon which failed leaves nothing but its log."""
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        end(process.pid)
        process.wait()
    there = registry.find(name)
    if there is not None and there.pid == process.pid:
        end_rest(there)
        registry.release(there, keep_log=True)


def _write_scheduler_file(path: Path, client: Any) -> None:
    from penstock.files import save_json

    # What a Dask worker or client reads of the file that a scheduler writes.
    known = client.scheduler_info(n_workers=0)
    save_json(path, {"type": "Scheduler", "id": known["id"], "address": known["address"]})


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Let this process make its temporary folders in ``folder``: they can be found if it dies."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


class _Told(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Raise _Told at the first signal that asks to end; later ones must not disturb the end."""

    def tell(number: int, frame: Any) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise _Told(number)

    before = {each: signal.signal(each, tell) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main(order: str, tell: int) -> None:
    """Keep the cluster of ``order`` (JSON), and say through the pipe ``tell`` how it began."""
    os.set_inheritable(tell, False)  # the pipe ends with this process, not with its workers
    told = json.loads(order)
    spec = ClusterSpec(**told["spec"])

    def say(**answer: Any) -> None:
        with os.fdopen(tell, "w") as pipe:
            pipe.write(json.dumps(answer) + "\n")

    def ready(entry: Registered) -> None:
        try:
            say(started=asdict(entry))
        except BrokenPipeError:
            # Whoever asked for it has gone, and nobody knows of the cluster.
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        keep(
            told["name"],
            spec,
            ready,
            folder=Path(told["folder"]),
            scheduler_file=Path(told["scheduler_file"]) if told["scheduler_file"] else None,
        )
    except PenstockError as error:
        say(error=error.to_dict(), trace=traceback.format_exc())
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
