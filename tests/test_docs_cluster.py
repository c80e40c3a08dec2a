"""The pages on clusters and gangs: their examples run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cluster.spec import ClusterSpec


@pytest.fixture(scope="module")
def pages(root: Path) -> dict[str, str]:
    return {name: (root / f"docs/{name}.md").read_text() for name in ("cluster", "gangs")}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(page: str) -> Iterator[list[str]]:
    text = "".join(blocks(page, "bash") + blocks(page, "console")).replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and "=" in words[0]:
            words = words[1:]  # a variable before the command
        if words[:1] == ["penstock"] and "..." not in words and not words[-1].endswith(":"):
            yield words[1 : words.index(">")] if ">" in words else words[1:]


def test_files_with_options_can_be_read(pages: dict[str, str], tmp_path: Path) -> None:
    *manifests, options = blocks(pages["cluster"], "yaml")
    kinds = [yaml.safe_load(manifest)["kind"] for manifest in manifests]
    assert kinds == ["DaskCluster", "Job"]
    (tmp_path / "office.yaml").write_text(options)
    spec = ClusterSpec(cluster=str(tmp_path / "office.yaml")).configured()
    assert (spec.cluster, spec.hosts, spec.start_timeout) == ("mpi", "h1:4,h2:4", 120)


def python(folder: Path, *words: str, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def examples(page: str, folder: Path) -> dict[str, Path]:
    """Write the programs of a page, which begin with their name."""
    found = {}
    for text in blocks(page, "python"):
        if name := re.match(r"# (\w+\.py)\n", text):
            found[name[1]] = folder / name[1]
            found[name[1]].write_text(text)
    return found


@pytest.mark.mpi
@pytest.mark.slow
def test_examples_of_gangs_print_what_the_page_shows(pages: dict[str, str], tmp_path: Path) -> None:
    shown = {text.split()[2]: text.splitlines()[1:] for text in blocks(pages["gangs"], "console")}
    programs = examples(pages["gangs"], tmp_path)
    assert list(programs) == list(shown) == ["mean.py", "descent.py"]
    for name, program in programs.items():
        assert python(program.parent, name)[-1] == shown[name][-1]
    assert {file.name for file in tmp_path.iterdir()} == {*programs, "descent.npz"}


@pytest.mark.slow
@pytest.mark.mpi
def test_the_script_inside_an_mpi_job(pages: dict[str, str], tmp_path: Path, mpirun: Any) -> None:
    script = examples(pages["cluster"], tmp_path)["job.py"]
    done = mpirun(script, 4)
    assert done.returncode == 0, done.stdout
    assert "[(0, 2), (1, 2)]" in done.stdout


@pytest.mark.mpi
@pytest.mark.slow
def test_a_cluster_that_stays_does_as_the_page_says(pages: dict[str, str], tmp_path: Path) -> None:
    part = section(pages["cluster"], "A cluster that stays")
    start, *_, stop = [words for words in commands(part) if words[0] == "cluster"][:3]
    notebook = next(text for text in blocks(part, "python") if "connect" in text)
    environ = {"PENSTOCK_STATE": str(tmp_path / "state")}
    told = python(tmp_path, "-m", "penstock", *start, **environ)
    try:
        assert told[0].startswith("cluster default: 4 workers (mpi), ready in ")
        shown = [line[:12] for line in blocks(part, "console")[0].splitlines() if line[0] == " "]
        assert [line[:12] for line in told[1:]] == shown
        ranks = str([f"rank {rank} of 4" for rank in range(4)])
        assert python(tmp_path, "-c", notebook, **environ) == [ranks]
    finally:
        python(tmp_path, "-m", "penstock", *stop, **environ)
    assert list((tmp_path / "state").iterdir()) == []
