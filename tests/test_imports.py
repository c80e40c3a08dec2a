"""Imports go one way, start-up is fast, and a kernel's twins export the same names."""

import ast
import json
import os
import resource
import subprocess
import sys

import pytest

# A module may import from its own layer and from those with a lower number.
LAYERS = {"penstock": 0, "kernels": 0, "partition": 1, "workers": 2, "cluster": 3, "pipelines": 4}
# What holds imports: they are statements, and no part of an expression.
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
HEAVY = {"cupy", "mpi4py", "numpy", "numba", "scipy", "pandas", "pyarrow", "dask", "distributed"}


def imported_layers(source, package):
    """Return the folders that code of ``package`` imports from, type checking aside."""
    names, left = [], [ast.parse(source)]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            left += node.orelse
            continue
        left += [child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS)]
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")
            base = base[: len(base) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names += [f"{stem}.{alias.name}" for alias in node.names]
    ours = [name.split(".") for name in names if name.split(".")[0] == "penstock"]
    return {parts[1] if len(parts) > 1 and parts[1] in LAYERS else "penstock" for parts in ours}


def test_imports_go_one_way(root):
    faults = {}
    files = [file for folder in LAYERS for file in (root / folder).rglob("*.py")]
    assert len(files) > 20
    for file in files:
        if file == root / "penstock/__main__.py":
            continue  # the door of `python -m penstock`, which nothing imports
        place = file.relative_to(root).parent.parts
        package = ("penstock", *place) if place[0] != "penstock" else place
        own = LAYERS[package[1] if len(package) > 1 else "penstock"]
        found = imported_layers(file.read_text(), ".".join(package))
        if upward := sorted(layer for layer in found if LAYERS[layer] > own):
            faults[str(file.relative_to(root))] = upward
    assert not faults


def test_only_tests_import_naive_kernels(root):
    faults = [
        str(file.relative_to(root))
        for folder in LAYERS
        for file in (root / folder).rglob("*.py")
        if file.parent != root / "kernels/naive" and "kernels.naive" in file.read_text()
    ]
    assert not faults


def test_every_kernel_has_its_naive_twin(root):
    def names(file):
        body = ast.parse(file.read_text()).body
        return {
            node.name
            for node in body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        }

    # By noun: a module, or the package of a kernel that has several pieces.
    modules = {
        file: file.parent.name if file.stem == "__init__" else file.stem
        for backend in ("cpu", "cuda")
        for pattern in ("*.py", "*/__init__.py")
        for file in (root / "kernels" / backend).glob(pattern)
        if file != root / "kernels" / backend / "__init__.py"
    }
    assert len(modules) > 5
    for module, name in modules.items():
        # What compiles .cu files, carries results of walks to the host and arrays to the GPU,
        # knows vector registers; and what NumPy has of its own: searchsorted, argsort.
        if name in ("module", "stream", "uploads", "vector", "search", "sort"):
            continue
        twin = root / f"kernels/naive/{name}.py"
        if not twin.is_file():
            # What several kernels of one subject share: gnn, next to gnn_rules.py.
            noun = name.partition("_")[0]
            homes = [root / f"kernels/naive/{noun}.py", root / f"kernels/{noun}_rules.py"]
            assert any(home.is_file() for home in homes), f"{module} belongs to no naive twin"
            continue
        missing = names(module) - names(twin)
        assert not missing, f"{module}: no naive twin of {missing}"


def test_public_names_are_there():
    import penstock

    names = ["CSR", "ClusterSpec", "Graph", "PenstockError", "Vectors", "centrality", "connect"]
    names += ["etl", "generate", "info", "order", "partition_graph", "run_flow", "validate", "walk"]
    names += ["walk_array", "Partition"]
    names += ["node2vec_array", "similar", "word2vec"]
    names += ["evaluate_vectors", "export_vectors", "resources"]
    names += ["betweenness", "closeness", "clustering", "communities", "components"]
    names += ["eccentricity", "harmonic", "pagerank", "strong_components", "triangles"]
    assert dir(penstock) == sorted([*names, "embed", "gang", "gnn", "__version__"])
    for name in names:
        assert callable(getattr(penstock, name)), name
    assert callable(penstock.gang.run)
    for name in ("train", "predict", "evaluate"):
        assert callable(getattr(penstock.gnn, name)), name
    for name in ("train", "evaluate", "predict", "export"):
        assert callable(getattr(penstock.embed, name)), name
    with pytest.raises(AttributeError):
        penstock.nosuch  # noqa: B018


# -- start-up ---------------------------------------------------------------------------------


def python(*arguments, cwd):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=True, timeout=120
    )


def loaded_by(statement, cwd):
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    return set(json.loads(python("-c", code, cwd=cwd).stdout.splitlines()[-1]))


def test_import_loads_nothing_heavy(tmp_path):
    loaded = loaded_by("import penstock", tmp_path)
    assert "penstock" in loaded
    assert not loaded & (HEAVY | {"cyclopts", "pydantic", "rich"})


def test_help_loads_nothing_heavy(tmp_path):
    statement = "from penstock.pipelines.cli import run\nassert run(['--help']) == 0"
    loaded = loaded_by(statement, tmp_path)
    assert "cyclopts" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [(("-c", "import penstock"), 0.150), (("-m", "penstock", "--help"), 0.400)],
    ids=["import", "help"],
)
def test_start_is_fast(arguments, limit, tmp_path):
    def seconds(*command):
        """Return what it computes; on a busy machine it also waits for others."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(*command, cwd=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    # On a slow machine the limit grows with what Python itself needs for a few modules of its own
    # (about 0.07 s where the limits were set), measured in turns: others may come and go.
    few = ("-c", "import asyncio, inspect, json")
    turns = [(seconds(*few), seconds(*arguments)) for _ in range(5)]
    yardstick, best = map(min, zip(*turns, strict=True))
    assert best < limit * max(1.0, yardstick / 0.07), turns
