"""Starting, watching and ending the process of a stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.cluster.running import log_tail
from penstock.documents import parse_json
from penstock.errors import PenstockError
from penstock.files import save_json
from penstock.pipelines.flow.document import Flow, StageSpec, with_stages
from penstock.pipelines.flow.previous import with_previous
from penstock.secrets import hidden
from penstock.temporary import TemporaryFolder
from penstock.workers.processes import process_began, runs_still

_END_SECONDS = 30.0
_OLDER_SECONDS = 60.0
_GROUP_SECONDS = 2.0


class StageProcess:
    """One attempt at a stage.

    previous  a copy of the output that it had before; None: there is none
    """

    def __init__(
        self,
        flow: Flow,
        stage: StageSpec,
        cluster: dict[str, Any],
        log: Path | None,
        *,
        resume: bool = False,
        plan: bool = False,
        previous: Path | None = None,
    ) -> None:
        self.flow, self.stage, self.log, self.plan = flow, stage, log, plan
        options = with_previous(stage.options, previous)
        options = with_stages(options, lambda name: _placed(flow, name))
        command = stage.command
        if command is not None:
            for name, value in (("resume", resume), ("overwrite", True)):
                if command.has(name) and value and command.writes:
                    options[name] = True
        self._folder = TemporaryFolder("penstock-stage")
        folder = self._folder.path
        self.order = {
            "job": None if command is None else command.name,
            "python": stage.python,
            "home": str(flow.home),
            "inputs": [str(flow.path_of(one)) for one in stage.inputs],
            "out": str(flow.output(stage.name)),
            "options": options,
            "cluster": cluster,
            "plan": plan,
            "hidden": hidden(),
            "result": str(folder / "result.json"),
            "failed": str(folder / "failed.json"),
        }
        self._order_file = folder / "order.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it ends when its standard input does, so with this process."""
        save_json(self._order_file, self.order)
        words = [
            sys.executable,
            "-P",
            "-m",
            "penstock.pipelines.flow.process",
            str(self._order_file),
        ]
        with (self.log or Path(os.devnull)).open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.flow.home,
                start_new_session=True,  # Ctrl-C is for the flow, which stops its stages
            )  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Return the identity of this process, for the run after a crash."""
        assert self._process is not None
        pid = self._process.pid
        return {"process": pid, "process_began": process_began(pid)}

    def wait(self, timeout: float | None) -> Any:
        """Return the stage's report, or raise its error."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise PenstockError(
                f"stage {self.stage.name} was stopped after {timeout:g} s",
                remedy="Give it a longer timeout:, and run the flow again: it resumes",
            ) from None
        finally:
            if self._process.stdin is not None and self._process.poll() is not None:
                self._process.stdin.close()
                self._end_group()
        try:
            if code:
                raise self._error(code)
            result = Path(self.order["result"])
            if not result.is_file() and self.stage.python is not None:
                raise StageError(
                    f"the process of stage {self.stage.name} ended before its function returned",
                    expected="a function that returns: os._exit ends its process at once",
                )
            return parse_json(result.read_bytes()) if result.is_file() else {}
        finally:
            self._folder.close()

    def stop(self) -> None:
        """End it like Ctrl-C, and by force if that takes long."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._end_group()

    def _end_group(self) -> None:
        """End processes that a stage has left behind, after its own process has exited.

        What ends by itself, as a tracker of shared memory, is given a moment.
        """
        assert self._process is not None
        group, deadline = self._process.pid, time.monotonic() + _GROUP_SECONDS
        while _is_alive(group):
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
                return
            time.sleep(0.02)

    def _error(self, code: int) -> PenstockError:
        failed = Path(self.order["failed"])
        with suppress(OSError, ValueError):
            found = parse_json(failed.read_bytes())
            if found.get("what"):
                return StageError(
                    str(found["what"]), expected=found.get("expected"), got=found.get("got"),
                    remedy=found.get("remedy"), kind=str(found.get("error")),
                )  # fmt: skip
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        tail = log_tail(self.log, lines=5) if self.log else ""
        return StageError(
            f"the process of stage {self.stage.name} ended with {how}",
            got=tail or None,
            remedy=f"See {self.log}; run the flow again: it resumes" if self.log else None,
        )


def _is_alive(group: int) -> bool:
    """Return whether a group has a process that is not a zombie."""
    import psutil

    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    for one in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


class StageError(PenstockError):
    """A stage's process failed; ``kind`` is the class of its error."""

    def __init__(self, what: str, *, kind: str = "PenstockError", **more: Any) -> None:
        super().__init__(what, **more)
        self.kind = kind

    def to_dict(self) -> dict[str, str | None]:
        """Return the parts for ``--json``."""
        return super().to_dict() | {"error": self.kind}


def wait_for_older(name: str, started: dict[str, Any]) -> None:
    """Wait until the process of a stage has ended whose flow was killed: it ends by itself."""
    deadline = time.monotonic() + _OLDER_SECONDS
    while time.monotonic() < deadline:
        if not runs_still(started.get("process", -1), started.get("process_began", 0)):
            return
        time.sleep(0.1)
    raise PenstockError(
        f"stage {name} is still run by process {started.get('process')} of a flow that was killed",
        remedy="End that process, then run the flow again",
    )


def _placed(flow: Flow, name: str) -> Path:
    stage, _, rest = name.partition("/")
    return flow.output(stage) / rest if rest else flow.output(stage)
