"""What a run would do and take, and what makes an output one of earlier days."""

import json
import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from penstock.pipelines.cli import run
from penstock.pipelines.flow import run_flow

JOBS = """
cluster: threads
stages:
  graph: {job: generate sbm, nodes: %d}
  walks: {job: walk, input: graph, length: 5}
"""


URLS = """
cluster: threads
stages:
  nodes: {job: etl, input: "URL", source: a, target: b, nodes: "p*.csv"}
  edges: {job: etl, input: "URL", source: a, target: b}
  text: {python: "mine:make", input: "URL"}
"""


def write(home, text):
    (home / "flow.yaml").write_text(text)
    return home / "flow.yaml"


def planned(path, capsys):
    assert run(["run", str(path), "--plan", "--json"]) == 0
    return {one["name"]: one for one in json.loads(capsys.readouterr().out)["stages"]}


@pytest.mark.slow
def test_a_stage_is_planned_by_what_its_input_is_now(tmp_path, capsys):
    """Before the first night that is not known; before every other one it is yesterday's."""
    path = write(tmp_path, JOBS % 400)
    first = planned(path, capsys)
    assert first["graph"]["disk_bytes"] > 0
    assert (first["walks"]["memory_bytes"], first["walks"]["unknown"]) == (None, "graph")
    assert run_flow(path).state == "passed"
    again = planned(write(tmp_path, JOBS % 500), capsys)
    assert (again["graph"]["runs"], again["walks"]["runs"]) == (True, True)
    assert "nodes" in again["graph"]["why"]
    assert again["walks"]["memory_bytes"] > 0
    assert again["walks"]["assumed"] == "graph"


@pytest.mark.slow
def test_files_of_patterns_in_options_and_of_urls_count_as_inputs(tmp_path, capsys):
    for name, text in ("e.csv", "a,b\n1,2\n"), ("p1.csv", "id\n1\n2\n"):
        (tmp_path / name).write_text(text)
    (tmp_path / "mine.py").write_text("def make(given, out): out.write_text(given)")
    served = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/e.csv"
        path = write(tmp_path, URLS.replace("URL", url))
        assert run_flow(path).state == "passed"
        assert (tmp_path / "flow/text").read_text() == url
        assert [one["runs"] for one in planned(path, capsys).values()] == [False] * 3
        (tmp_path / "p2.csv").write_text("id\n3\n")
        (tmp_path / "e.csv").write_text("a,b\n2,1\n")  # of the same size
        os.utime(tmp_path / "e.csv", (0, 0))  # servers send seconds
        assert [one["runs"] for one in planned(path, capsys).values()] == [True] * 3
        server.shutdown()
