"""Telling others how a run ended: a command, or a webhook that is sent the run's record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.records import RunRecord

_SECONDS = 60


def notify(flow: Flow, run: RunRecord) -> None:
    """Call ``on_success`` or ``on_failure``; that it fails is said, and changes nothing else."""
    target = flow.on_success if run.state == "passed" else flow.on_failure
    if not target:
        return
    try:
        if target.startswith(("http://", "https://")):
            _post(target, run)
        else:
            _call(target, run)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        run.body["notification"] = f"{type(error).__name__}: {error}"
        run.save()
        print(f"penstock: warning: on_{'success' if run.state == 'passed' else 'failure'} "
              f"of {flow.name} did not work: {error}", file=sys.stderr)  # fmt: skip


def _call(command: str, run: RunRecord) -> None:
    """Run a shell command of the flow's owner, told of the run by its environment."""
    told = {
        "PENSTOCK_RUN": str(run.folder),
        "PENSTOCK_FLOW": str(run.body["flow"]),
        "PENSTOCK_STATE": run.state,
    }
    subprocess.run(
        command, shell=True, env={**os.environ, **told}, timeout=_SECONDS, check=True,
        stdin=subprocess.DEVNULL, stdout=sys.stderr,
    )  # fmt: skip


def _post(address: str, run: RunRecord) -> None:
    stages = {
        name: {key: one[key] for key in ("state", "seconds", "why", "error") if key in one}
        for name, one in run.body["stages"].items()
    }
    told = {"flow": run.body["flow"], "run": run.name, "state": run.state, "stages": stages,
            "error": run.body.get("error")}  # fmt: skip
    request = urllib.request.Request(
        address, json.dumps(told).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS):
        pass
