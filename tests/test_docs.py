"""What the documents show works, and what they repeat is what the code says."""

import inspect
import re
from itertools import pairwise

import numpy as np
import pytest

import penstock
from penstock import errors


@pytest.fixture(scope="module")
def pages(root):
    return {file: file.read_text() for file in [*root.glob("*.md"), *(root / "docs").glob("*.md")]}


def test_links_lead_somewhere(pages):
    for page, text in pages.items():
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_diagrams_name_modules_that_are_there(root, pages):
    found = []
    for page, text in pages.items():
        for block in re.findall(r"```mermaid\n(flowchart TD.*?)```", text, re.DOTALL):
            found += [(page, path) for path in re.findall(r"\b(?:\w+/)+\w+(?:\.py)?\b", block)]
    assert len({page for page, _ in found}) == 2
    assert len(set(found)) == len(found)  # a reader opens no file twice
    for page, path in found:
        there = (root / path).exists() or (root / f"{path}.py").exists()
        assert there, f"{page.name}: {path}"


def test_every_guide_is_listed(root):
    listed = (root / "docs/README.md").read_text()
    for page in (root / "docs").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in listed, page.name


def public_functions():
    found = {}
    for name in penstock.__all__:
        value = getattr(penstock, name)
        names = getattr(value, "__all__", []) if inspect.ismodule(value) else []
        found |= {f"{name}.{one}": getattr(value, one) for one in names}
        found[name] = value
    return {name: value for name, value in found.items() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", public_functions())
def test_a_public_function_says_what_it_takes_and_gives(name):
    function = public_functions()[name]
    lines = inspect.getdoc(function).splitlines()
    sections = [before for before, line in pairwise(lines) if line and set(line) == {"-"}]
    assert {"Parameters", "Examples"} <= set(sections), sections
    assert {"Returns", "Yields"} & set(sections), sections
    for parameter in inspect.signature(function).parameters.values():
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        assert stars + parameter.name in lines, parameter.name


def test_the_tree_of_errors_is_the_codes(root):
    tree = errors.__doc__[errors.__doc__.index("PenstockError") :].split("\n\n")[0]
    assert tree in (root / "docs/errors.md").read_text()


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


def test_the_format_names_every_key_and_column(root, make_graph):
    text = (root / "docs/format.md").read_text()
    graph = make_graph(weights=True, relations=2, times=True, features="sparse", labels=2)
    names = [*graph.manifest.__dataclass_fields__, *graph.manifest.dtypes]
    for name in names:
        assert f"`{name}`" in text, name


def test_the_readme_has_the_two_commands_that_ci_runs(root):
    blocks = re.findall(r"```bash\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    assert "penstock demo" in blocks[0]
    assert blocks[1].rstrip().endswith("pytest")
    assert (root / ".ci/run").stat().st_mode & 0o111
