"""What the documents show can be typed, and what they mark as such runs; the site builds.

`<!-- runs -->` before a block means that it runs on a laptop, in the order of the page, in a folder
that holds what pages show as a file: a block whose first line is `# name.yaml`. `<!-- runs, slow
-->` means the same, for commands that take longer; `<!-- fails, slow -->` that they exit with 1.
"""

import json
import os
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from processes import python

from penstock.pipelines.cli import app, run
from penstock.pipelines.flow.document import read_flow

ROOT = Path(__file__).parent.parent
PAGES = {f"docs/{page.name}": page for page in sorted((ROOT / "docs").glob("*.md"))}
PAGES["README.md"] = ROOT / "README.md"
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>(?:runs|fails)(?:, slow)?) -->\n)?"
    r"^```(?P<kind>console|bash|sh|python|yaml)\n"
    r"(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# What is made smaller when commands run: that they run, in this order, is what is tested.
SMALLER = {
    "kg": ["--entities", "1000", "--triples", "10000"],
    "sbm": ["--nodes", "2000"],
    "rmat": ["--scale", "10"],
    "zoo": ["--graphs", "20"],
}


def blocks(page, *kinds):
    return [one for one in BLOCK.finditer(PAGES[page].read_text()) if one["kind"] in kinds]


def commands_of(block):
    """Yield the words after `penstock` of each command of a block with prompts and outputs."""
    lines = block.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
        lexer.whitespace_split = True
        part = []
        for word in [*lexer, ";"]:
            if word and not set(word) <= set("&|;>"):
                part.append(word)
                continue
            yield from ours(part)
            part = []


def ours(words):
    """Yield what comes after `penstock`; also of a command that a command is given (`--`)."""
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[:1] == ["penstock"]:
        yield words[1:]
    if "--" in words:
        yield from ours(words[words.index("--") + 1 :])


@pytest.mark.parametrize("page", PAGES)
def test_commands_can_be_typed_and_flows_can_be_read(page, tmp_path):
    for block in blocks(page, "console", "bash", "sh"):
        for words in commands_of(block["text"]):
            if "..." not in words:
                app.parse_args(words, exit_on_error=False, print_error=False)
    for block in blocks(page, "yaml"):
        if "stages" in (yaml.safe_load(block["text"]) or {}):
            (tmp_path / "flow.yaml").write_text(block["text"])
            read_flow(tmp_path / "flow.yaml", {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place where the documents' commands may run: nothing of it reaches this user's state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    table = {"follower": [i % 50 for i in range(400)], "followed": [i * 7 % 50 for i in range(400)]}
    pq.write_table(pa.table(table), tmp_path / "follows.parquet")
    edges = pa.table({"source": table["follower"], "target": table["followed"]})
    pq.write_table(edges, tmp_path / "edges.parquet")
    for page in PAGES:
        for block in blocks(page, "yaml", "python"):
            if named := re.match(r"# (\w+\.(yaml|py))\n", block["text"]):
                text = block["text"].replace("/srv", str(tmp_path / "srv"))
                (tmp_path / named[1]).write_text(text)
    return tmp_path


def smaller(words):
    """Return a command that generates fewer nodes, edges or triples; others as they are."""
    more = SMALLER.get(words[1], []) if words[:1] == ["generate"] else []
    for flag in more[::2]:
        if flag in words:
            words = words[: words.index(flag)] + words[words.index(flag) + 2 :]
    return [*words, *more]


def pages_that_run():
    for page in PAGES:
        marks = {block["mark"] for block in BLOCK.finditer(PAGES[page].read_text())}
        if "runs" in marks:
            yield page, {"runs"}
        if "runs, slow" in marks:
            yield pytest.param(page, {"runs", "runs, slow", "fails, slow"}, marks=pytest.mark.slow)


@pytest.mark.parametrize(("page", "marks"), [*pages_that_run()])
@pytest.mark.timeout(600)
def test_commands_run(page, marks, folder, capsys):
    session = {}  # the Python of a page is one session
    for block in blocks(page, "console", "bash", "sh", "python"):
        if block["mark"] not in marks:
            continue
        if block["kind"] == "python":
            exec(block["text"], session)
            continue
        for words in commands_of(block["text"]):
            if words[1:2] != ["serve"]:  # which runs until it is stopped
                fails = block["mark"].startswith("fails")
                assert run(smaller(words)) == fails, (words, capsys.readouterr())
    for manifest in folder.glob("*/run.json"):
        results = (json.loads(manifest.read_text()).get("report") or {}).get("trained", {})
        if (scores := results.get("validation")) and "mrr" in scores:
            assert scores["mrr"] > 0.1, manifest  # of vectors at random 0.007


# -- clusters and gangs ------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("program", ["mean.py", "descent.py"])
def test_examples_of_gangs_print_what_the_page_shows(program, folder):
    texts = [block["text"] for block in blocks("docs/gangs.md", "console")]
    (shown,) = [text for text in texts if text.split()[2] == program]
    assert python(program, cwd=folder).splitlines()[-1] == shown.splitlines()[-1]


@pytest.mark.mpi
@pytest.mark.slow
def test_the_script_inside_an_mpi_job(folder, mpirun):
    done = mpirun(folder / "job.py", 4)
    assert done.returncode == 0, done.stdout
    assert "[(0, 2), (1, 2)]" in done.stdout


@pytest.mark.mpi
@pytest.mark.slow
def test_a_cluster_that_stays_does_as_the_page_says(folder):
    texts = [b["text"] for b in blocks("docs/cluster.md", "console", "python")]
    start, *_, stop = commands_of(next(text for text in texts if "cluster start" in text))
    started = python("-m", "penstock", *start, cwd=folder)
    try:
        assert {"default:", "4", "(mpi),"} <= set(started.splitlines()[0].split())
        notebook = next(text for text in texts if text.startswith("import penstock\n"))
        said = python("-c", notebook, cwd=folder)
        assert said.splitlines() == [str([f"rank {rank} of 4" for rank in range(4)])]
    finally:
        python("-m", "penstock", *stop, cwd=folder)
    assert os.listdir(folder / "state") == []


# -- the format and the site -------------------------------------------------------------------


def test_the_format_can_be_read_without_penstock(make_graph, monkeypatch):
    code = blocks("docs/format.md", "python")[0]["text"]
    assert "penstock" not in code
    graph = make_graph(weights=True, shard_edges=64, name="g")
    monkeypatch.chdir(graph.path.parent)
    found = {}
    exec(code, found)
    csr, adjacency = graph.csr(), found["adjacency"]
    np.testing.assert_array_equal(adjacency.indptr, csr.indptr)
    np.testing.assert_array_equal(adjacency.indices, csr.indices)
    np.testing.assert_array_equal(adjacency.data, csr.weights)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    if find_spec("mkdocs") is None:
        pytest.skip("needs mkdocs: pip install '.[docs]'")
    words = ["build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    python("-m", "mkdocs", *words, cwd=ROOT, timeout=None)
    assert (
        'id="penstock.partition_graph"' in (tmp_path / "site/python/graphs/index.html").read_text()
    )
    loads = r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//|class="mermaid"'
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(loads, page.read_text()), f"{page} loads something from the network"
