"""What the documents show works, and what they repeat is what the code says."""

import ast
import inspect
import re
import textwrap
import types
from dataclasses import fields, is_dataclass
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


def diagrams(pages):
    """Yield the pages with a diagram of modules, from command to kernel, and that diagram."""
    for page, text in pages.items():
        for block in re.findall(r"```mermaid\n(flowchart TD.*?)```", text, re.DOTALL):
            yield page.name, block


def test_diagrams_name_modules_that_are_there(root, pages):
    found = []
    for page, block in diagrams(pages):
        found += [(page, path) for path in re.findall(r"\b(?:\w+/)+\w+(?:\.py)?\b", block)]
    assert {page for page, _ in found} == {"centrality.md", "embed.md", "gnn.md", "word2vec.md"}
    assert len(set(found)) == len(found)  # a reader opens no file twice
    for page, path in found:
        there = (root / path).exists() or (root / f"{path}.py").exists()
        assert there, f"{page}: {path}"


def arrows(block):
    """Return the arrows of a diagram, as pairs of paths."""
    nodes = dict(re.findall(r'(\w+)\["([^":]+)', block))
    found = re.findall(r'^ *(\w+)(?:\["[^"]*"\])? --> (\w+)', block, re.MULTILINE)
    return [
        (one, other)
        for begin, end in found
        for one in nodes[begin].split(", ")
        for other in nodes[end].split(", ")
    ]


def module_of(path):
    return "penstock." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(root, path):
    """Return what a module, or a package with all within, imports: modules, and names of them."""
    files = [root / path] if path.endswith(".py") else [*(root / path).rglob("*.py")]
    found = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def leads_to(root, one, other):
    """Return whether a reader of a module finds the other one named, or given to it to call."""
    module, text = module_of(other), (root / one).read_text() if one.endswith(".py") else ""
    if other.startswith("kernels/"):
        noun = other.split("/")[2].removesuffix(".py")
        return module in imported(root, one) or f'kernel("{noun}"' in text
    if one in {"workers/gang.py", "workers/comm/single.py"}:  # they call any function
        return other.startswith("workers/")
    if one == "pipelines/cli.py":
        return module.removeprefix("penstock.pipelines.") + ":" in text
    # What a class or a package declares, the other one implements.
    interfaces = {module_of(one), module.rpartition(".")[0]} & imported(root, other)
    ours = imported(root, one) | {module_of(one)}
    return module in ours or bool(interfaces & ours)


def test_a_diagrams_arrows_are_calls(root, pages):
    found = [(page, *arrow) for page, block in diagrams(pages) for arrow in arrows(block)]
    assert len(found) > 60
    assert not [each for each in found if not leads_to(root, *each[1:])]
    assert leads_to(root, "workers/gnn/train.py", "workers/gnn/state.py")
    assert not leads_to(root, "cluster/connect.py", "cluster/mpi/world.py")
    assert not leads_to(root, "workers/embed/train.py", "kernels/cpu/walk")


def test_every_guide_is_listed(root):
    listed = (root / "docs/README.md").read_text()
    for page in (root / "docs").glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in listed, page.name


def public_names():
    found = {}
    for name in penstock.__all__:
        value = getattr(penstock, name)
        names = value.__all__ if inspect.ismodule(value) else []
        found |= {f"{name}.{one}": getattr(value, one) for one in names}
        found[name] = value
    return found


def public_functions():
    return {name: value for name, value in public_names().items() if inspect.isfunction(value)}


METHODS = types.FunctionType, classmethod, staticmethod


def public_methods():
    """Return the methods of public classes, but for those of what they inherit from."""
    found = {}
    for name in penstock.__all__:
        if inspect.isclass(value := getattr(penstock, name)):
            found |= {
                f"{name}.{one}": getattr(value, one)
                for one, kept in vars(value).items()
                if not one.startswith("_") and isinstance(kept, METHODS)
            }
    return found


def sections(value):
    """Return the sections of a docstring, and the names that they list."""
    lines = inspect.getdoc(value).splitlines()
    titles = {before for before, line in pairwise(lines) if line and set(line) == {"-"}}
    return titles, {name for line in lines for name in line.split(", ")}


def lacks(function, *needed):
    """Return what the docstring of a function does not say."""
    titles, listed = sections(function)
    signature = inspect.signature(function)
    names = {
        "*" * (2 * (one.kind is one.VAR_KEYWORD)) + one.name
        for one in signature.parameters.values()
        if one.name != "self"
    }
    needed = {*needed, *(["Parameters"] if names else [])}
    if any(isinstance(one, ast.Raise) for one in ast.walk(parsed(function))):
        needed.add("Raises")
    if signature.return_annotation not in ("None", None) and not titles & {"Returns", "Yields"}:
        needed.add("Returns")
    return (needed - titles) | (names - listed)


def parsed(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


@pytest.mark.parametrize("name", public_functions())
def test_a_public_function_says_what_it_takes_gives_and_raises(name):
    assert not lacks(public_functions()[name], "Examples")


@pytest.mark.parametrize("name", public_methods())
def test_a_public_method_says_what_it_takes_gives_and_raises(name):
    """Its example may be that of its class."""
    method = public_methods()[name]
    assert not lacks(method)
    owner = getattr(penstock, name.split(".")[0])
    shown = inspect.getdoc(owner).split("Examples\n")[1]
    assert f"{name.split('.')[1]}(" in shown or "Examples" in sections(method)[0]


def test_a_public_class_says_what_it_holds():
    for owner in filter(inspect.isclass, public_names().values()):
        titles, listed = sections(owner)
        assert "Examples" in titles
        assert titles & {"Attributes", "Parameters"}, owner
        if "Attributes" in titles and is_dataclass(owner):
            assert {one.name for one in fields(owner)} <= listed


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
