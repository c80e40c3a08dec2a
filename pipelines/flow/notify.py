"""Telling others how a run ended: a command, or a webhook that is sent the run's record."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

from penstock.errors import PenstockError, warn
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.records import RunRecord, State

_SECONDS = 60


def notify(flow: Flow, run: RunRecord) -> None:
    """Call ``on_success`` or ``on_failure``; a failure is reported, and changes nothing else."""
    target = flow.on_success if run.state == State.PASSED else flow.on_failure
    if not target:
        return
    try:
        if target.startswith(("http://", "https://")):
            _post(target, run)
        else:
            _call(target, run, flow.home)
    except (
        OSError, subprocess.SubprocessError, ValueError, http.client.HTTPException
    ) as error:  # fmt: skip
        run.body["notification"] = f"{type(error).__name__}: {error}"
        with suppress(OSError, PenstockError):
            run.save()
        which = "success" if run.state == State.PASSED else "failure"
        warn(f"on_{which} of {flow.name} failed: {error}")


def _call(command: str, run: RunRecord, home: Path) -> None:
    """Run a shell command of the flow's owner in its folder; its environment describes the run."""
    given = {
        "PENSTOCK_RUN": str(run.folder),
        "PENSTOCK_FLOW": str(run.body["flow"]),
        "PENSTOCK_RUN_STATE": run.state,  # PENSTOCK_STATE is the folder of the cluster registry
    }
    subprocess.run(
        command, shell=True, cwd=home, env={**os.environ, **given}, timeout=_SECONDS, check=True,
        stdin=subprocess.DEVNULL, stdout=2,  # what sys.stderr is in a notebook has no number
    )  # fmt: skip


def _post(address: str, run: RunRecord) -> None:
    stages = {
        name: {key: one[key] for key in ("state", "seconds", "why", "error") if key in one}
        for name, one in run.body["stages"].items()
    }
    body = {"flow": run.body["flow"], "run": run.name, "state": run.state, "stages": stages,
            "error": run.body.get("error")}  # fmt: skip
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS):
        pass
