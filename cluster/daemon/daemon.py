"""The daemon that keeps a started cluster until it is stopped.

It holds the cluster's context manager, and with it the scheduler. ``keep`` is
``penstock cluster start --foreground``; ``launch`` starts this command in the background and waits
until every worker has connected.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import CREDENTIALS, TOKEN, Registered
from penstock.cluster.daemon.stop import end, end_rest, stop
from penstock.cluster.running import log_tail
from penstock.cluster.security import security
from penstock.cluster.security.credentials import make_credentials
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, UsageError
from penstock.options import given_options, words_of

# Before the cluster starts, Python loads its libraries, possibly from a shared disk.
_LOADING = 30.0
_SAY_AFTER = 2.0
_POLL = 0.03
_LISTEN_EVERY = 0.2


def keep(
    name: str,
    spec: ClusterSpec,
    ready: Callable[[Registered], None],
    *,
    scheduler_file: Path | None = None,
    quiet: bool = True,
) -> None:
    """Start a cluster, call ``ready`` when every worker has connected, keep it until SIGTERM or ^C.

    A process that ``launch`` has started already writes the log in the draft of its registry entry.
    Unless ``quiet``, it shows who has connected. Signals that end this process raise
    KeyboardInterrupt, with the number of all but Ctrl-C's.
    """
    from penstock.cluster.addresses import dashboard_link
    from penstock.cluster.connect import connect
    from penstock.files import save_json

    token = os.environ.get(TOKEN, "")
    launched = registry.is_draft(token)
    if not launched:
        token = secrets.token_hex(8)
    entry = registry.this_process(
        name,
        spec.cluster,
        token,
        scheduler_file=str(scheduler_file) if scheduler_file else None,
    )
    draft, failed = registry.draft(token), True
    os.environ[TOKEN] = entry.token  # until the end of this process
    try:
        if security(spec) is None and not spec.no_tls:
            # Clients look here as well.
            make_credentials(draft / CREDENTIALS)
            spec = replace(spec, tls=entry.folder / CREDENTIALS)
        entry = replace(
            entry,
            log=str(entry.folder / "log") if launched else None,
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
            if launched and select.select([0], [], [], 0)[0]:
                raise KeyboardInterrupt  # its launcher was killed: no process knows of the cluster
            if scheduler_file is not None:
                save_json(scheduler_file, client.scheduler_info(n_workers=0))
            registry.update(entry)
            ready(entry)
            while True:
                # Not signal.pause: a signal that another thread receives would not end it.
                time.sleep(_LISTEN_EVERY)
    except KeyboardInterrupt as signalled:
        failed = False
        if entry.address is None and not signalled.args:  # Ctrl-C, while it started
            raise
    finally:
        if draft.exists():  # not claimed
            shutil.rmtree(draft, ignore_errors=True)
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

    After two seconds, ``notify`` is called with what is still missing.
    """
    # The daemon's claim decides; this check only avoids a start that must fail.
    there = registry.find(name)
    if there is not None and there.alive():
        raise registry.taken(there)
    token = secrets.token_hex(8)
    folder = registry.draft(token)
    given = {"name": name, **given_options(spec)}
    if scheduler_file is not None:
        given["scheduler_file"] = scheduler_file
    command = [sys.executable, "-P", "-m", "penstock", "cluster", "start", "--foreground", "-q"]
    try:
        with (folder / "log").open("a+b") as log:
            process = subprocess.Popen(
                [*command, *words_of(given)],
                stdin=subprocess.PIPE,  # closed once this process ends
                stdout=log,
                stderr=log,
                env=os.environ | {TOKEN: token},
                start_new_session=True,
            )
            try:
                # By its descriptor: depending on the failure, the file has moved or is removed.
                return _started(process, name, spec, Path(f"/proc/self/fd/{log.fileno()}"), notify)
            except BaseException:
                _end_launched(process, name, token)
                raise
            finally:
                assert process.stdin is not None
                process.stdin.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    process: subprocess.Popen[bytes],
    name: str,
    spec: ClusterSpec,
    log: Path,
    notify: Callable[[str], None],
) -> Registered:
    """Return the entry of a daemon whose workers have connected; raise if they do not."""
    count = {None: "the workers", 1: "1 worker"}.get(spec.workers, f"{spec.workers} workers")
    limit = spec.start_timeout + _LOADING
    began, notified = time.monotonic(), False
    while (code := process.poll()) is None and time.monotonic() < began + limit:
        there = registry.find(name)
        if there is not None and there.pid == process.pid and there.address is not None:
            return there
        if not notified and time.monotonic() > began + _SAY_AFTER:
            notified = True
            notify(
                f"waiting for {count} of cluster {name} ({spec.cluster}), up to "
                f"{spec.start_timeout:g} s"
            )
        time.sleep(_POLL)
    if code is None:
        raise ClusterError(
            f"cluster {name!r} is not ready after {limit:.0f} s",
            expected=f"{count} within {spec.start_timeout:g} s",
            got=log_tail(log) or None,
            remedy="Raise --start-timeout",
        )
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise (UsageError if code == UsageError.exit_code else ClusterError)(
        f"cluster {name!r} did not start: its daemon {how}", got=log_tail(log) or None
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
