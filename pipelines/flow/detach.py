"""``penstock run --detach``: the same command in a session of its own, which outlives the shell.

Its process carries the token of a started cluster that the flow names: ``cluster stop`` ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

from penstock.cluster.daemon.registry import TOKEN, find
from penstock.cluster.running import log_tail
from penstock.errors import PenstockError, UsageError
from penstock.options import given_options, words_of
from penstock.output_lock import own_directory
from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.options import RunOptions
from penstock.pipelines.flow.records import FOLDER, all_runs
from penstock.pipelines.flow.run import check_of

_BEGIN_SECONDS = 60.0
_POLL = 0.1


@dataclass(frozen=True)
class Detached(CountsReport):
    """A run that continues by itself."""

    run: str
    process: int
    log: str

    def text(self) -> str:
        """Return what it is, and what ends it."""
        return (
            f"{shown(self.run)}: runs as process {self.process}\n  log      {shown(self.log)}\n"
            f"  stop it  kill {self.process}"
        )


def detach(flow: Flow, options: RunOptions) -> Detached:
    """Start the run of a flow that was read, and return when it has its record."""
    options.check(flow)
    with check_of(flow, (flow.stages[name] for name in options.chosen(flow))) as check:
        check.passed()
    base = flow.home / FOLDER
    own_directory(base)
    cluster = find(flow.spec.configured().cluster)
    token = {TOKEN: cluster.token} if cluster is not None and cluster.alive() else {}
    given = given_options(options, passing=("detach",))
    words = words_of({"from" if name == "first" else name: one for name, one in given.items()})
    log = base / f"{flow.name}.log"
    before = {run.name for run in all_runs(base)}  # one may have had the same process number
    with log.open("ab") as opened:
        begin = opened.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock", "run", str(flow.path), *words],
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=opened,
            env=os.environ | token,
            start_new_session=True,
        )
    deadline = time.monotonic() + _BEGIN_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll()
        for run in all_runs(base, flow.name):
            new = run.name not in before and run.body.get("process") == process.pid
            if new and not ended:
                return Detached(str(run.folder), process.pid, str(log))
        if ended is not None:
            break
        time.sleep(_POLL)
    kind = UsageError if process.poll() == UsageError.exit_code else PenstockError
    raise kind(
        f"the run of {flow.name} did not begin, or has failed",
        remedy=f"See {shown(log)}",
        got=log_tail(log, lines=3, begin=begin) or None,
    )
