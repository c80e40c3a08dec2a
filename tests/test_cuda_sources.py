"""Every CUDA source compiles for the GPUs we name, on a machine that has none.

NVRTC compiles what CuPy would compile, and comes as a wheel (the ``dev`` extra). A template only
means something once it is instantiated, so a .cu file names instances to try, one per line:

    // instance: merge_values<float, SUM>

PENSTOCK_CUDA_ARCHITECTURES names the targets: CI names real GPUs, for which the assembler reads
what the compiler wrote; without it the compiler stops at PTX. Little is optimized, which takes
three quarters of the time and finds nothing: tests on GPUs run optimized code. All sources take a
minute or more, and are slow:

    pytest -m "slow or not slow" tests/test_cuda_sources.py
"""

import ast
import ctypes
import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ARCHITECTURES = os.environ.get("PENSTOCK_CUDA_ARCHITECTURES", "compute_90").split()
FOLDER = Path(__file__).parents[1] / "kernels" / "cuda"
SOURCES = sorted(FOLDER.rglob("*.cu"))


@cache
def wheels():
    """Return the folders of NVIDIA's wheels: nvidia/cu13 or nvidia/<library>."""
    spec = find_spec("nvidia")
    roots = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    return [folder for root in roots for folder in sorted(root.glob("*")) if folder.is_dir()]


@cache
def nvrtc():
    """Return the NVRTC library of a wheel."""
    for folder in wheels():
        for library in sorted((folder / "lib").glob("libnvrtc.so*")):
            # Of CUDA 13.0, as PyTorch brings it, NVRTC does not look beside itself for these.
            for beside in library.parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(beside))
            return ctypes.CDLL(str(library))
    return None


def nvrtc_version(library):
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def instances(source):
    return re.findall(r"^// instance: (.+?)\s*$", source, re.MULTILINE)


def by_nvrtc(library, path, architecture):
    """Compile with NVRTC; return what is wrong, or nothing."""
    source = path.read_text()
    includes = [FOLDER, *(p for w in wheels() for p in (w / "include", w / "include/cccl"))]
    flags = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-I{p}" for p in includes)]
    if nvrtc_version(library) >= (12, 9):
        flags.append("--Ofast-compile=max")
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), path.name.encode(), 0, None, None
    )
    for name in instances(source):
        library.nvrtcAddNameExpression(program, name.encode())
    options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    code = library.nvrtcCompileProgram(program, len(flags), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return "" if code == 0 else log.value.decode() or f"NVRTC error {code}"


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_the_source_compiles(path):
    library = nvrtc()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    for architecture in ARCHITECTURES:
        assert by_nvrtc(library, path, architecture) == ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_templates_name_instances(path):
    source = re.sub(r"__launch_bounds__\([^)]*\)", "", path.read_text())
    kernels = set(re.findall(r"template\s*<[^;{]*?__global__[^;{]*?(\w+)\s*\(", source))
    tried = {name.partition("<")[0].strip() for name in instances(source)}
    assert kernels <= tried, f"{path.name}: add lines such as // instance: {min(kernels)}<...>"


def test_launches_name_sources_that_are_there():
    named = {}
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("launch", "launch_blocks"):
                given = [node.args[0]]
            elif isinstance(node, ast.Assign) and "_FILE" in ast.unparse(node.targets[0]):
                given = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            else:
                continue
            named |= {a.value: path.name for a in given if isinstance(a, ast.Constant)}
    assert len(named) > 10
    sources = {str(path.relative_to(FOLDER).with_suffix("")) for path in SOURCES}
    assert set(named) <= sources, {name: named[name] for name in set(named) - sources}
    assert sources <= set(named), "no code launches these"
