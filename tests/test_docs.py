"""The examples in the documents work, and facts they repeat match the code."""

import re

import numpy as np
import pytest


@pytest.fixture(scope="module")
def pages(root):
    return {file: file.read_text() for file in [*root.glob("*.md"), *(root / "docs").glob("*.md")]}


def test_links_lead_somewhere(pages):
    for page, text in pages.items():
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_guide_is_listed(root):
    listed = (root / "docs/README.md").read_text()
    for page in (root / "docs").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in listed, page.name


def test_the_format_can_be_read_without_penstock(root, make_graph, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (root / "docs/format.md").read_text(), re.DOTALL)[1]
    assert "penstock" not in code
    graph = make_graph(weights=True, shard_edges=64, name="g")
    monkeypatch.chdir(graph.path.parent)
    found: dict = {}
    exec(code, found)
    csr, adjacency = graph.csr(), found["adjacency"]
    np.testing.assert_array_equal(adjacency.indptr, csr.indptr)
    np.testing.assert_array_equal(adjacency.indices, csr.indices)
    np.testing.assert_array_equal(adjacency.data, csr.weights)


def test_the_readme_has_the_two_commands_that_ci_runs(root):
    blocks = re.findall(r"```bash\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    assert "penstock demo" in blocks[0]
    assert blocks[1].rstrip().endswith("pytest")
    assert (root / ".ci/run").stat().st_mode & 0o111
