"""``penstock runs serve``: the runs of a folder and their pages, on this machine, read only.

/                        a table of the runs, the newest first
/run/NAME                the page of a run: as it was written, or made now if it is older
/run/NAME/log/STAGE      what a stage wrote

Nothing is written, and no path is built from a request: a name in it is looked up among the
existing runs. A page of another site must not read these through a name that it has resolved
to this machine: requests whose Host is not this machine are refused.
"""

from __future__ import annotations

import errno
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.cluster.dashboard import LOOPBACK_HOST
from penstock.errors import UsageError
from penstock.pipelines.flow.records import RunRecord, State, all_runs
from penstock.pipelines.report.command import NAME
from penstock.pipelines.report.data import gather
from penstock.pipelines.report.html import document, safe, table
from penstock.pipelines.report.page import page
from penstock.pipelines.report.values import shown_number, text
from penstock.pipelines.signals import Terminated

ADDRESS = "127.0.0.1"
_MOST_RUNS = 200
_LOG_BYTES = 1 << 20  # the end of a log, if it is longer
_TIMEOUT = 30.0


class RunServer(ThreadingHTTPServer):
    """Serves the runs of one folder to this machine."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._making = threading.Lock()  # a page at a time: each may read large outputs
        self._made: dict[str, tuple[int, str]] = {}
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            taken = error.errno == errno.EADDRINUSE
            raise UsageError(
                f"cannot serve on port {port}",
                got="another program uses it" if taken else "this user may not use it",
                remedy="Give another --port, or --port 0 for any that is free",
            ) from error

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore readers that have disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def run_named(self, name: str) -> RunRecord | None:
        """Return a run by its whole name."""
        return next((run for run in all_runs(self.folder) if run.name == name), None)

    def page_of(self, run: RunRecord) -> str:
        """Return the page of a run as it was written, or make it if the record is newer."""
        changed = (run.folder / "run.json").stat().st_mtime_ns
        written = run.folder / NAME
        own = written.is_file()
        if own and written.stat().st_mtime_ns >= changed:
            return written.read_text(encoding="utf-8")
        with self._making:
            known = self._made.get(run.name)
            if known is None or known[0] != changed or run.state in (State.RUNNING, State.KILLED):
                known = (changed, page(gather(run)))
                self._made = {run.name: known}  # the last one: pages are large
            return known[1]


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; all else is refused by the base class."""

    server: RunServer
    server_version = "penstock"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Answer with a page."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or LOOPBACK_HOST.fullmatch(hosts[0].strip()) is None:
            self._refuse(HTTPStatus.FORBIDDEN, "Only readers on this machine are answered.")
            return
        try:
            self._answer(self._parts())
        except ConnectionError:
            raise
        except Exception as error:
            # A damaged run must not take the others with it.
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"This cannot be shown: {error}")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log requests."""

    def _parts(self) -> list[str]:
        path = self.path.partition("?")[0].partition("#")[0]
        return [unquote(part) for part in path.strip("/").split("/")] if path.strip("/") else []

    def _answer(self, parts: list[str]) -> None:
        if not parts:
            self._send(HTTPStatus.OK, index(self.server.folder))
            return
        run = self.server.run_named(parts[1]) if parts[0] == "run" and len(parts) > 1 else None
        if run is not None and len(parts) == 2:
            # Anyone who may write to the folder can have written the page: it may load nothing.
            self._send(HTTPStatus.OK, self.server.page_of(run), sandbox=True)
        elif run is not None and len(parts) == 4 and parts[2] == "log":
            self._log(run, parts[3])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such run or log.")

    def _log(self, run: RunRecord, stage: str) -> None:
        path = logs_of(run).get(stage)
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such run or log.")
            return
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _LOG_BYTES, 0))
            found = file.read(_LOG_BYTES).decode("utf-8", "replace")
        self._send(HTTPStatus.OK, found, kind="text/plain")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        back = '<p><a href="/">All runs</a></p>'
        inner = f"<main><h1>{status.phrase}</h1><p>{safe(why)}</p>{back}</main>"
        self._send(status, document(status.phrase, inner))

    def _send(
        self, status: HTTPStatus, content: str, *, kind: str = "text/html", sandbox: bool = False
    ) -> None:
        body = content.encode("utf-8", "replace")
        self.send_response(status)
        more = {"Content-Security-Policy": "sandbox allow-scripts"} if sandbox else {}
        for name, value in {
            **more,
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def logs_of(run: RunRecord) -> dict[str, Path]:
    """Return the logs of a run by stage."""
    folder = run.folder / "logs"
    if not folder.is_dir():
        return {}
    found = sorted(folder.glob("*.log"))
    return {one.stem: one for one in found if one.is_file()}


def index(folder: Path) -> str:
    """Return the page that lists the runs of a folder."""
    runs = all_runs(folder)[::-1]
    rows, links, written = [], [], []
    for run in runs[:_MOST_RUNS]:
        rows.append(
            (run.name, run.state, text(run.body.get("began"))[:16].replace("T", " "),
             shown_number(run.body.get("seconds")), run.stages_text())
        )  # fmt: skip
        links.append(f"/run/{quote(run.name, safe='')}")
        logs = ", ".join(
            f'<a href="{links[-1]}/log/{quote(stage, safe="")}">{safe(stage)}</a>'
            for stage in logs_of(run)
        )
        written.append(f"<details><summary>Logs</summary>{logs}</details>" if logs else "")
    heads = ("Run", "State", "Began", "Seconds", "Stages")
    inner = table("Runs, the newest first", heads, rows, ("Logs", written), links)
    if not rows:
        inner = f"<p>There are no runs in {safe(str(folder))}.</p>"
    elif len(runs) > _MOST_RUNS:
        inner += f"<p>The last {_MOST_RUNS} of {len(runs):,}.</p>"
    return document("Runs", f"<header><h1>Runs</h1></header><main>{inner}</main>")


def serve(server: RunServer) -> None:
    """Answer until Ctrl-C, which is how it is meant to end; other signals are raised."""
    try:
        server.serve_forever(poll_interval=0.2)
    except Terminated:
        raise
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
