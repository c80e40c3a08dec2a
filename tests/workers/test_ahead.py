"""What a job compiles is compiled once, by whichever process comes to it first, and ahead."""

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from penstock.pipelines.cli import run
from penstock.workers.ahead import signature_of
from penstock.workers.signatures import KERNELS

# A job compiles, and says which kernels for which arguments.
_SAY = """
import json, os, sys
from numba import types
from numba.core.event import Listener, register
from numba.np.numpy_support import as_dtype
from penstock.kernels import compiled

def code(kind):
    if isinstance(kind, types.BaseTuple):
        return f"({' '.join(map(code, kind.types))})"
    if isinstance(kind, types.Array):
        return f"{code(kind.dtype)}:{kind.ndim}{'' if kind.mutable else '!'}"
    return "none" if kind is types.none else as_dtype(kind).str.lstrip("<|")

class Said(Listener):
    depth, found = 0, {}
    def on_start(self, event):
        self.depth += 1
    def on_end(self, event):
        self.depth -= 1
        function = event.data["dispatcher"].py_func
        if not self.depth:
            module = function.__module__.removeprefix("penstock.kernels.cpu.")
            self.found[f"{module}.{function.__name__}"] = " ".join(map(code, event.data["args"]))

register("numba:compile", said := Said())
from penstock.pipelines.cli import run
assert run(sys.argv[1:]) == 0
print(json.dumps(said.found))
"""


@pytest.mark.parametrize("job", KERNELS)
def test_what_is_compiled_ahead_are_kernels(job):
    for name, text in KERNELS[job].items():
        module, _, function = name.rpartition(".")
        kernel = getattr(import_module(f"penstock.kernels.cpu.{module}"), function)
        assert len(signature_of(text)) == len(inspect.signature(kernel).parameters), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "made", "options"),
    [
        ("word2vec train", "sbm {} --nodes 1000", "--epochs 1"),
        # The order that two cores usually choose, which depends on measured rates.
        ("gnn train", "sbm {} --nodes 1000", "--epochs 2 --order aggregate"),
        ("embed train", "kg {} --triples 3000", "--epochs 1"),
    ],
)
def test_a_job_calls_what_is_compiled_ahead(tmp_path, job, made, options):
    graph, out = tmp_path / "graph", tmp_path / "out"
    assert run(f"generate {made} -q".format(graph).split()) == 0
    # A cache that is there: nothing is compiled ahead.
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "DASK_PENSTOCK__DEVICE": "cpu"}
    for name in KERNELS[job]:
        module, _, function = name.rpartition(".")
        file = import_module(f"penstock.kernels.cpu.{module}").__file__
        assert file is not None
        (tmp_path / f"{Path(file).stem}.{function}-1.nbi").touch()
    command = [sys.executable, "-P", "-c", _SAY]
    words = f"{job} {graph} {out} --cluster threads {options} -q".split()
    said = json.loads(subprocess.check_output([*command, *words], env=env))
    assert {name: said.get(name) for name in KERNELS[job]} == KERNELS[job]
