"""The pages on clusters, gangs and hangs: commands parse, examples run, tables repeat the code."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cluster import gang, query
from penstock.cluster.connect import NO_WORKERS_TIMEOUT
from penstock.cluster.daemon import daemon, status, stop
from penstock.cluster.gang import coordinator
from penstock.cluster.mpi import world
from penstock.cluster.slurm.script import SlurmScript
from penstock.cluster.spec import KINDS, ClusterSpec
from penstock.options import flag
from penstock.partition import metis
from penstock.pipelines.cli import app
from penstock.pipelines.partition import PartitionOptions
from penstock.workers.comm.communicator import Communicator
from penstock.workers.comm.exchange_mpi import TAGS
from penstock.workers.gang import GRACE

# In the first columns of hangs.md, where Dask or a person speaks.
NOT_OURS = {
    "Client lost the connection to the scheduler",
    "Error during deserialization",
    "Nanny failed to start",
    "RankWorker failed to start",
    'connect("local")',
    "gang_status",
    "mpirun",
    "srun",
    "start()",
    "timeout",
}


@pytest.fixture(scope="module")
def pages(root: Path) -> dict[str, str]:
    return {name: (root / f"docs/{name}.md").read_text() for name in ("cluster", "gangs", "hangs")}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of tables, without their heads."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("|---"):
            found.pop()
        elif line.startswith("|"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def commands(page: str) -> Iterator[list[str]]:
    text = "".join(blocks(page, "bash") + blocks(page, "console")).replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and "=" in words[0]:
            words = words[1:]  # a variable before the command
        if words[:1] == ["penstock"] and "..." not in words and not words[-1].endswith(":"):
            yield words[1 : words.index(">")] if ">" in words else words[1:]


def test_commands_parse(pages: dict[str, str]) -> None:
    found = [words for page in pages.values() for words in commands(page)]
    assert len(found) > 20
    for words in found:
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_every_option_is_listed_with_its_default(pages: dict[str, str]) -> None:
    table = {code(row[0])[0]: row for row in rows(section(pages["cluster"], "Options"))}
    assert list(table) == [flag(field.name) for field in fields(ClusterSpec)]
    for field in fields(ClusterSpec):
        cell = table[flag(field.name)][1]
        if isinstance(field.default, float):
            assert cell == f"{field.default:g}"
        elif field.default not in (None, MISSING, False):
            assert str(field.default) in cell, field.name
    assert set(KINDS) - {"auto"} <= set(code(table["--cluster"][2]))
    slurm = section(pages["cluster"], "SLURM")
    for field in fields(SlurmScript):
        assert field.name == "command" or f"`{flag(field.name)}" in slurm, field.name


def test_files_with_options_can_be_read(pages: dict[str, str], tmp_path: Path) -> None:
    *manifests, options = blocks(pages["cluster"], "yaml")
    kinds = [yaml.safe_load(manifest)["kind"] for manifest in manifests]
    assert kinds == ["DaskCluster", "Job"]
    (tmp_path / "office.yaml").write_text(options)
    spec = ClusterSpec(cluster=str(tmp_path / "office.yaml")).configured()
    assert (spec.cluster, spec.hosts, spec.start_timeout) == ("mpi", "h1:4,h2:4", 120)


def test_every_method_of_a_communicator_is_listed(pages: dict[str, str]) -> None:
    cells = rows(section(pages["gangs"], "What ranks say to each other"))
    named = {word for row in cells for text in code(row[0]) for word in re.findall(r"^\w+", text)}
    offered = {name for name in vars(Communicator) if not name.startswith("_")}
    for_the_gang = {"abandon", "check_message", "forget", "leave"}
    assert named == offered - for_the_gang | {"mpi", "rank", "size"}
    assert f"0 to {TAGS - 1}" in pages["gangs"]


def test_every_option_of_a_gang_is_listed(pages: dict[str, str]) -> None:
    parameters = inspect.signature(gang.run).parameters
    named: dict[str, str] = {}
    for row in rows(section(pages["gangs"], "Options of `gang.run`")):
        names, defaults = code(row[0]), row[1].split(", ")
        named |= dict(zip(names, defaults, strict=len(names) > 1))
    assert list(named) == list(parameters)[4:]
    for name, cell in named.items():
        default = parameters[name].default
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert cell == f"{default:g}", name


def test_waits_last_as_long_as_the_table_says(pages: dict[str, str]) -> None:
    table = rows(section(pages["hangs"], "How long each wait lasts"))
    said = [[float(number) for number in re.findall(r"[\d.]+", row[1])] for row in table]
    parameters = inspect.signature(gang.run).parameters
    start = ClusterSpec().start_timeout
    assert ClusterSpec().worker_timeout == metis.SILENT
    assert said == [
        [start],
        [query.SILENT_SECONDS],
        [start],
        [parameters["start_timeout"].default],
        [parameters["wait_timeout"].default],
        [],
        [ClusterSpec().worker_timeout],
        [PartitionOptions(k=2).worker_timeout],
        [float(NO_WORKERS_TIMEOUT.removesuffix("s"))],
        [GRACE],
        [coordinator._SILENT, coordinator._TELL_TIMEOUT],
        [world._TRIES, start],
        [stop.STOP_TIMEOUT],
        [status.ANSWER_TIMEOUT],
    ]
    assert f"{daemon._LOADING:.0f} later at most" in pages["hangs"]
    assert parameters["timeout"].default is None


def texts_of(root: Path) -> list[str]:
    """Return the strings in the code; what is filled in is three dots."""
    found: list[str] = []
    for folder in ("penstock", "cluster", "workers", "pipelines"):
        for file in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [getattr(part, "value", None) for part in node.values]
                    found.append("".join(p if isinstance(p, str) else "…" for p in parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def test_messages_are_those_of_the_code(pages: dict[str, str], root: Path) -> None:
    cells = [
        row[0]
        for title in ("It does not start", "A gang stands still", "Other jobs")
        for row in rows(section(pages["hangs"], title))
    ]
    cells += [row[3] for row in rows(section(pages["hangs"], "How long each wait lasts"))]
    messages = {text for cell in cells for text in code(cell)} - NOT_OURS
    # Options, programs, and what is put together from the words of SLURM.
    messages = {m for m in messages if not m.startswith(("--", "if __", "job …"))}
    assert len(messages) > 35
    known = texts_of(root)
    unknown = []
    for message in sorted(messages):
        parts = [re.escape(part.strip()) for part in message.split("…") if part.strip(" :")]
        if not any(map(re.compile(".*".join(parts), re.DOTALL).search, known)):
            unknown.append(message)
    assert unknown == []


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
