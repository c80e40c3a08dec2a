"""Calling hooks at the end of a run: a command, or a webhook that is sent the run's record.

``on_success``; ``on_failure`` once after the last attempt, or if a run is late; ``on_retry`` after
one that is tried again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, warn
from penstock.pipelines.flow.document import Flow, read_hook
from penstock.pipelines.flow.prometheus import save_metrics
from penstock.pipelines.flow.records import FOLDER, RunRecord, State, all_runs, begin_run
from penstock.pipelines.flow.report import write_page

_SECONDS = 60.0  # of a webhook that does not answer; of a scheduler's hook
LATE = "late"


def notify(flow: Flow, run: RunRecord) -> None:
    """Call the hook of a run that has ended; a failure is reported, and changes nothing else."""
    key = hook_of(run)
    _call_hook(getattr(flow.keys, key), key, run, flow.home, flow.keys.hook_timeout)


def leave_record(
    path: Path,
    day: dt.date,
    origin: dict[str, Any],
    error: PenstockError,
    settings: Mapping[str, str],
    *,
    page: bool = True,
) -> None:
    """Record a due run of the flow at ``path`` that could not start, and call its hook."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    before = last_read(path)
    name = path.stem if before is None else before.series[0]
    record = begin_run(path, name, day, text, origin)
    record.body.update(
        state=State.FAILED, seconds=0.0, error=error.to_dict(), final=error.exit_code == 2
    )
    record.save()
    save_metrics(record)
    if page:
        write_page(record.folder)
    notify_unread(path, record, settings)


def notify_unread(path: Path, run: RunRecord, settings: Mapping[str, str]) -> None:
    """Call a run's hook as the flow's file names it, or the file as it last could be read.

    A scheduler that waits for it must not wait for ever.
    """
    key, before = hook_of(run), last_read(path)
    day = dt.date.fromisoformat(run.date)
    for one in (path, *([] if before is None else [before.folder / "flow.yaml"])):
        hook, limit = read_hook(one, key, path.parent, settings, day)
        if hook is not None:
            _call_hook(hook, key, run, path.parent, limit or _SECONDS)
            return


def notify_late(path: Path, name: str, day: dt.date, settings: Mapping[str, str]) -> None:
    """Call ``on_failure`` of a flow that has not passed by the time that it should have."""
    body = {"flow": name, "state": LATE, "date": day.isoformat(), "stages": {}}
    notify_unread(path, RunRecord(path.parent / FOLDER, body), settings)


def last_read(path: Path) -> RunRecord | None:
    """Return the last run of a flow's file that could read it."""
    runs = reversed(all_runs(path.parent / FOLDER))
    of_file = (one for one in runs if Path(one.body["file"]).name == path.name)
    return next((one for one in of_file if one.series[1] is not None), None)


def hook_of(run: RunRecord) -> str:
    """Return the name of the hook that the end of a run calls."""
    if run.state == State.PASSED:
        return "on_success"
    number, count = run.attempt
    return "on_failure" if run.body.get("final") or number == count else "on_retry"


def _call_hook(hook: str | None, key: str, run: RunRecord, home: Path, limit: float | None) -> None:
    if not hook:
        return
    try:
        if hook.startswith(("http://", "https://")):
            _post(hook, run)
        else:
            _command(hook, run, home, limit)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        run.body["notification"] = f"{type(error).__name__}: {error}"
        if run.state != LATE:
            with suppress(OSError, PenstockError):
                run.save()
        warn(f"{key} of {run.body['flow']} failed: {error}")


def _command(command: str, run: RunRecord, home: Path, limit: float | None) -> None:
    """Run a shell command of the flow's owner in its folder; its environment describes the run."""
    given = {
        "PENSTOCK_RUN": str(run.folder),
        "PENSTOCK_FLOW": str(run.body["flow"]),
        "PENSTOCK_DATE": run.date,
        "PENSTOCK_RUN_STATE": run.state,  # PENSTOCK_STATE is the folder of the cluster registry
    }
    process = subprocess.Popen(
        command,
        shell=True,
        cwd=home,
        env={**os.environ, **given},
        process_group=0,
        stdin=subprocess.DEVNULL,
        stdout=2,  # what sys.stderr is in a notebook has no number
    )
    try:
        code = process.wait(limit)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if code:
        raise subprocess.CalledProcessError(code, command)


def _post(address: str, run: RunRecord) -> None:
    import http.client
    import urllib.request

    class SamePost(urllib.request.HTTPRedirectHandler):
        """Follows a redirection with the same POST; urllib would make a GET of it."""

        def redirect_request(self, request: Any, *answer: Any) -> urllib.request.Request:
            return urllib.request.Request(answer[-1], request.data, dict(request.headers))

    stages = {
        name: {key: one[key] for key in ("state", "seconds", "why", "error") if key in one}
        for name, one in run.body["stages"].items()
    }
    body = {
        "flow": run.body["flow"],
        "run": run.name,
        "date": run.date,
        "state": run.state,
        "stages": stages,
        "error": run.body.get("error"),
    }
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(SamePost).open(request, timeout=_SECONDS):
            pass
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
