"""``penstock runs serve``: what it shows, and what it refuses."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from penstock.pipelines.report.serve import RunServer, index


@pytest.fixture
def ask(make_run):
    """Serve a run, and return what asks for a path."""
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
    before = sorted(ask.folder.parent.parent.rglob("*"))
    answer, content = ask("/")
    assert answer.status == 200
    assert f'<a href="/{ask.folder.name}/report.html">' in content
    assert "2026-01-01" in content
    answer, content = ask(f"/{ask.folder.name}/report.html")
    assert answer.status == 200
    assert f"<h1>Passed: {ask.folder.name}</h1>" in content
    assert answer.headers["Content-Security-Policy"] == "sandbox allow-scripts"
    answer, content = ask(f"/{ask.folder.name}/logs/model.log")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert content == "epoch 1\n<b>hit</b>\n"
    assert sorted(ask.folder.parent.parent.rglob("*")) == before  # it only reads


def test_the_trends_of_gates_over_dates(make_run, read_page):
    make_run(1)
    make_run(2)
    folder = make_run(3, state="failed", stages={})  # before its gates
    page = read_page(index(folder.parent))
    dates = [f"2026-01-0{n}" for n in (3, 2, 1)]
    assert [cell for row in page.rows for cell in row if cell in dates] == dates
    assert page.tables["model: score"][1:3] == [["01-01", "0.51"], ["01-02", "0.52"]]
    assert "model: score" in page.charts


def test_a_run_that_was_killed_is_not_shown_as_it_was_while_it_ran(ask):
    body = json.loads((ask.folder / "run.json").read_text())
    (ask.folder / "run.json").write_text(json.dumps(body | {"state": "running", "process": -1}))
    (ask.folder / "report.html").write_text("Still running")
    content = ask(f"/{ask.folder.name}/report.html")[1]
    assert ask.folder.name in content
    assert "Still running" not in content


PATHS = "/%2e%2e /..%2f..%2fout /../../etc/passwd /{} /{}/run.json /{}/%00"
PATHS += " /{}/logs/..%2frun.json /{}/logs/%2fetc%2fpasswd"


def test_no_other_path_no_other_name_and_no_other_method_is_answered(ask):
    for path in PATHS.replace("{}", ask.folder.name).split():
        answer, content = ask(path)
        assert answer.status == 404
        assert "root:" not in content
    names = "evil.example localhost.evil.example 10.0.0.1:80".split()
    for hosts in (*([name] for name in names), [], ["localhost", "localhost"]):
        answer, content = ask("/", host=hosts)
        assert answer.status in (400, 403)
        assert ask.folder.name not in content
    for host in ("localhost", "127.0.0.1:9999"):  # a tunnel
        assert ask("/", host=[host])[0].status == 200
    for method in ("POST", "DELETE"):
        assert ask("/", method, body=b"x" * 100)[0].status == 501
    answer, content = ask("/", "HEAD")
    assert (answer.status, content) == (200, "")
    assert ask.server.server_address[0] == "127.0.0.1"


def test_ctrl_c_ends_it_well(make_run):
    folder = make_run()
    words = [sys.executable, "-P", "-m", "penstock", "runs", "serve", "--port", "0", "--json"]
    words += ["--folder", str(folder.parent)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
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
