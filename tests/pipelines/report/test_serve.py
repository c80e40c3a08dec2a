"""``penstock runs serve``: what it shows, and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from penstock.errors import UsageError
from penstock.pipelines.report.serve import RunServer


@pytest.fixture
def ask(make_run, monkeypatch):
    """Serve a run, and return what asks for a path; its page is a heading here."""
    monkeypatch.setattr(
        "penstock.pipelines.report.serve.page", lambda facts: f"<h1>{facts.state}: Ü</h1>"
    )
    folder = make_run(evil="<b>hit</b>")
    server = RunServer(folder.parent, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()

    def ask(path, method="GET", host=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
        connection.putrequest(method, path, skip_host=True)
        for one in [f"localhost:{server.server_address[1]}"] if host is None else host:
            connection.putheader("Host", one)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        return answer, content

    ask.folder, ask.server = folder, server
    yield ask
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_runs_their_pages_and_logs(ask):
    answer, content = ask("/")
    assert answer.status == 200
    assert f'<a href="/run/{ask.folder.name}">' in content
    answer, content = ask(f"/run/{ask.folder.name}")
    assert answer.status == 200
    assert "<h1>passed: Ü</h1>" in content
    assert answer.headers["Content-Security-Policy"] == "sandbox allow-scripts"
    answer, content = ask(f"/run/{ask.folder.name}/log/model")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert content == "epoch 1\n<b>hit</b>\n"


def test_nothing_is_written(ask):
    before = sorted(ask.folder.parent.parent.rglob("*"))
    ask("/")
    ask(f"/run/{ask.folder.name}")
    assert sorted(ask.folder.parent.parent.rglob("*")) == before


def test_a_page_that_was_written_is_shown_as_it_is_until_the_record_changes(ask):
    written = ask.folder / "report.html"
    written.write_text("as it was")
    assert ask(f"/run/{ask.folder.name}")[1] == "as it was"
    record = ask.folder / "run.json"
    later = written.stat().st_mtime_ns + 10**9
    os.utime(record, ns=(later, later))
    assert "<h1>passed: Ü</h1>" in ask(f"/run/{ask.folder.name}")[1]
    body = json.loads(record.read_text()) | {"state": "failed"}
    record.write_text(json.dumps(body))
    os.utime(record, ns=(later + 1, later + 1))
    assert "<h1>failed: Ü</h1>" in ask(f"/run/{ask.folder.name}")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/run/..", "/run/%2e%2e", "/run/..%2f..%2fout", "/run/{run}/log/..%2frun",
        "/run/{run}/log/%2fetc%2fpasswd", "/run/{run}/run.json", "/run/{run}/log/model.log",
        "/../../etc/passwd", "//etc/passwd", "/run/{run}/log/linked", "/run/%00", "/nothing",
        "/run/{run}/log/model/more", "/run/{run}%0d%0aX: y",
    ],
)  # fmt: skip
def test_paths_that_lead_elsewhere_are_not_found(ask, path, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (ask.folder / "logs" / "linked.log").symlink_to(secret)
    (ask.folder.parent / "g-20260101-000001").symlink_to(tmp_path)
    answer, content = ask(path.replace("{run}", ask.folder.name).replace(" ", "%20"))
    assert answer.status == 404
    assert "secret" not in content


@pytest.mark.parametrize(
    "host",
    [["evil.example"], ["localhost.evil.example"], [], ["localhost", "localhost"], ["10.0.0.1:80"],
     ["127.0.0.1.evil.example"], [""], ["localhost:80:80"], ["user@localhost"]],
)  # fmt: skip
def test_readers_under_another_name_are_refused(ask, host):
    answer, content = ask("/", host=host)
    assert answer.status in (400, 403)
    assert ask.folder.name not in content


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "[::1]:80", "LOCALHOST:1"])
def test_readers_through_a_tunnel_are_answered(ask, host):
    assert ask("/", host=[host])[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(ask, method):
    assert ask("/", method, body=b"x" * 100)[0].status == 501
    answer, content = ask("/", "HEAD")
    assert (answer.status, content) == (200, "")


def test_a_damaged_run_leaves_the_others(ask, monkeypatch):
    def broken(*_):
        raise TypeError("no ink")

    monkeypatch.setattr("penstock.pipelines.report.serve.page", broken)
    answer, content = ask(f"/run/{ask.folder.name}")
    assert answer.status == 500
    assert "no ink" in content
    assert ask("/")[0].status == 200


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"another program uses it.*--port"):
            RunServer(tmp_path, taken.getsockname()[1])


def test_it_listens_on_this_machine_alone(ask):
    assert ask.server.server_address[0] == "127.0.0.1"


def test_ctrl_c_ends_it_well(make_run):
    folder = make_run()
    words = [sys.executable, "-P", "-m", "penstock", "runs", "serve", "--port", "0",
             "--folder", str(folder.parent), "--json"]  # fmt: skip
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        address = json.loads(process.stdout.readline())["address"]
        # A reader who stays connected does not keep it.
        port = int(address.rsplit(":", 1)[1].strip("/"))
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert reader.recv(12) == b"HTTP/1.1 200"
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
        assert (process.returncode, out, error) == (0, "", "")
        assert time.monotonic() - began < 10


def test_an_empty_folder(tmp_path):
    server = RunServer(tmp_path, 0)
    from penstock.pipelines.report.serve import index

    assert "There are no runs" in index(tmp_path)
    server.server_close()
