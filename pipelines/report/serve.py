"""``penstock runs serve``: the runs of a folder and their pages, on this machine, read only.

/                       the runs, the newest first, and their trends
/RUN/report.html        the page of a run: as it was written, or made now if it is older
/RUN/logs/STAGE.log     what a stage wrote

Nothing is written, and no path is built from a request: a name in it is looked up among the
existing runs. A page of another site must not read these through a name that it has resolved
to this machine: requests whose Host is not this machine are refused.
"""

from __future__ import annotations

import errno
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from penstock.cluster.dashboard import LOOPBACK_HOST
from penstock.errors import UsageError
from penstock.pipelines.flow.records import RunRecord, State, all_runs, gates_of
from penstock.pipelines.report.command import NAME
from penstock.pipelines.report.content import Cell, Section, Table, seconds
from penstock.pipelines.report.facts import trend
from penstock.pipelines.report.page import document, page
from penstock.pipelines.signals import Terminated

ADDRESS = "127.0.0.1"
_MOST_RUNS = 200
_TREND = 30  # runs of a flow whose metrics are drawn
_LOG_BYTES = 1 << 20  # the end of a log, if it is longer
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class RunServer(ThreadingHTTPServer):
    """Serves the runs of one folder to this machine."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise UsageError(
                f"cannot serve on port {port}",
                got=error.strerror,
                remedy="Give another --port, or --port 0 for any that is free",
            ) from error

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers that have disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; all else is refused by the base class."""

    server: RunServer
    server_version = "penstock"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30.0

    def do_GET(self) -> None:
        """Answer with a page."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or LOOPBACK_HOST.fullmatch(hosts[0].strip()) is None:
            self._refuse(HTTPStatus.FORBIDDEN, "Only readers on this machine are answered.")
            return
        try:
            self._answer(unquote(self.path.partition("?")[0]).strip("/"))
        except ConnectionError:
            raise
        except Exception as error:
            # A damaged run must not take the others with it.
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"This cannot be shown: {error}")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log requests."""

    def _answer(self, path: str) -> None:
        if not path:
            self._send(index(self.server.folder))
            return
        name, _, inner = path.partition("/")
        run = next((run for run in all_runs(self.server.folder) if run.name == name), None)
        logs = {f"logs/{one.name}": one for one in run.folder.glob("logs/*.log")} if run else {}
        if run is not None and inner == NAME:
            # Anyone who may write to the folder can have written the page: it may load nothing.
            self._send(_page(run), policy="sandbox allow-scripts")
        elif inner in logs:
            with logs[inner].open("rb") as file:
                file.seek(max(file.seek(0, 2) - _LOG_BYTES, 0))
                self._send(file.read(_LOG_BYTES).decode("utf-8", "replace"), kind="text/plain")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such run or log.")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(document(status.phrase, [], [why], good=False), status)

    def _send(
        self,
        content: str,
        status: HTTPStatus = HTTPStatus.OK,
        *,
        kind: str = "text/html",
        policy: str | None = None,
    ) -> None:
        body = content.encode("utf-8", "replace")
        more = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        if policy is not None:
            more["Content-Security-Policy"] = policy
        self.send_response(status)
        for name, value in {**_HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _page(run: RunRecord) -> str:
    """Return the page of a run as it was written, or make it if the record is newer.

    The record of a run that is killed stays as it was when the run was under way.
    """
    written = run.folder / NAME
    changed = (run.folder / "run.json").stat().st_mtime_ns
    ended = run.state not in (State.RUNNING, State.KILLED)
    if ended and written.is_file() and written.stat().st_mtime_ns >= changed:
        return written.read_text(encoding="utf-8")
    return page(run)


def index(folder: Path) -> str:
    """Return the page that lists the runs of a folder, and the trends of their gates."""
    runs = all_runs(folder)
    if not runs:
        return document("Runs", [], [f"There are no runs in {folder}."])
    heads = ("Run", "State", "Date", "Began", "Seconds", "Stages")
    rows = [
        (
            Cell(run.name, f"/{quote(run.name, safe='')}/{NAME}"),
            Cell(run.state, good=None if run.state == State.RUNNING else run.state == State.PASSED),
            run.date,
            run.body["began"][:16].replace("T", " "),
            seconds(run.seconds),
            run.stages_text(),
        )
        for run in runs[: -_MOST_RUNS - 1 : -1]
    ]
    some = f" (the last {_MOST_RUNS} of {len(runs):,})" if len(runs) > _MOST_RUNS else ""
    listed = Section("Runs", [Table(f"The newest first{some}", heads, rows, open=True)])
    return document(
        f"Runs in {folder.absolute().parent.name}/{folder.name}", [listed, *_trends(runs)]
    )


def _trends(runs: list[RunRecord]) -> list[Section]:
    """Return the metrics of the gates of every flow over the dates of its runs."""
    found = []
    for flow in dict.fromkeys(run.body["flow"] for run in reversed(runs)):
        own = [run for run in runs if run.body["flow"] == flow]
        own = sorted(own, key=lambda run: run.date)[-_TREND:]
        gated: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in own:
            gated |= gates_of(run)
        tables = [made for key, gates in gated.items() if (made := trend(own, key, gates))]
        if tables:
            found.append(Section(f"Trends of {flow}", tables))
    return found


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
