"""Every command that the documents show can be typed, and those that are marked so run.

`<!-- runs -->` before a block of commands means that they run on a laptop, in the order of the
page, in a folder that holds what pages show as a file: a block whose first line is `# name.yaml`.
`<!-- runs, slow -->` means the same, for commands that take longer.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cyclopts import CycloptsError

from penstock.pipelines.cli import app, run
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.document.schema import flow_schema

ROOT = Path(__file__).parent.parent
PAGES = {page.stem: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
PAGES["docs"] = ROOT / "docs/README.md"
PAGES["README"] = ROOT / "README.md"
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>runs(?:, slow)?) -->\n)?^```(?P<kind>console|bash|sh|python)\n"
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


@dataclass(frozen=True)
class Command:
    """The words after `penstock`, and how the block that shows it is marked."""

    words: list[str]
    mark: str | None

    @property
    def whole(self) -> bool:
        """Whether nothing was left out of it."""
        return "..." not in self.words


def commands(text: str) -> list[Command]:
    return [
        Command(words, block["mark"])
        for block in BLOCK.finditer(text)
        if block["kind"] != "python"
        for words in commands_of(block["text"])
    ]


def commands_of(block: str) -> Iterator[list[str]]:
    """Yield the words of each of our commands, of a block with prompts, outputs and comments."""
    lines = block.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
        lexer.whitespace_split = True
        part: list[str] = []
        for word in [*lexer, ";"]:
            if word and not set(word) <= set("&|;>"):
                part.append(word)
                continue
            yield from ours(part)
            part = []


def ours(words: list[str]) -> Iterator[list[str]]:
    """Yield what comes after `penstock`; also of a command that a command is given (`--`)."""
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[:1] == ["penstock"]:
        yield words[1:]
    if "--" in words:
        yield from ours(words[words.index("--") + 1 :])


def shown(page: str) -> list[Command]:
    return commands(PAGES[page].read_text())


def all_commands() -> list[pytest.param]:
    return [
        pytest.param(one.words, id=f"{page}: {' '.join(one.words)}")
        for page in PAGES
        for one in shown(page)
        if one.whole
    ]


@pytest.mark.parametrize("words", all_commands())
def test_a_command_can_be_typed(words: list[str]) -> None:
    assert refusal(words) is None


def refusal(words: list[str]) -> CycloptsError | None:
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return error
    return None


def flows() -> list[pytest.param]:
    found = []
    for page, path in PAGES.items():
        for number, text in enumerate(yaml_blocks(path.read_text())):
            if "stages" in (yaml.safe_load(text) or {}):
                found.append(pytest.param(text, id=f"{page} {number}"))
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    return found + [pytest.param(file.read_text(), id=file.stem) for file in examples]


def yaml_blocks(text: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def schema() -> Any:
    """A validator of the flows' schema: to make it, and to check it, takes most of a second."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = flow_schema()
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


@pytest.mark.parametrize("text", flows())
def test_a_flow_fits_the_schema(text: str, tmp_path: Path, schema: Any) -> None:
    schema.validate(yaml.safe_load(text))
    (tmp_path / "flow.yaml").write_text(text)
    read_flow(tmp_path / "flow.yaml", {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where the documents' commands may run: nothing of it reaches this user's state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    table = {"follower": [i % 50 for i in range(400)], "followed": [i * 7 % 50 for i in range(400)]}
    pq.write_table(pa.table(table), tmp_path / "follows.parquet")
    edges = pa.table({"source": table["follower"], "target": table["followed"]})
    pq.write_table(edges, tmp_path / "edges.parquet")
    for path in PAGES.values():
        for text in yaml_blocks(path.read_text()):
            if named := re.match(r"# (\w+\.yaml)\n", text):
                (tmp_path / named[1]).write_text(text.replace("/srv", str(tmp_path / "srv")))
    return tmp_path


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after a number of seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"it did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def smaller(words: list[str]) -> list[str]:
    """Return a command that generates fewer nodes, edges or triples; others as they are."""
    more = SMALLER.get(words[1], []) if words[:1] == ["generate"] else []
    for flag in more[::2]:
        if flag in words:
            words = words[: words.index(flag)] + words[words.index(flag) + 2 :]
    return [*words, *more]


def run_all(page: str, marks: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run the marked blocks of a page in order; its Python is one session."""
    session: dict[str, object] = {}
    for block in BLOCK.finditer(PAGES[page].read_text()):
        if block["mark"] not in marks:
            continue
        if block["kind"] == "python":
            exec(block["text"], session)
            continue
        for words in commands_of(block["text"]):
            if words[1:2] != ["serve"]:  # which runs until it is stopped
                with within(600):
                    assert run(smaller(words)) == 0, (words, capsys.readouterr())


@pytest.mark.parametrize("page", [p for p in PAGES if any(c.mark == "runs" for c in shown(p))])
def test_commands_run(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_all(page, {"runs"}, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(c.mark == "runs, slow" for c in shown(p))]
)
def test_commands_run_also_slow_ones(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all(page, {"runs", "runs, slow"}, capsys)
    for manifest in folder.glob("*/run.json"):
        results = (json.loads(manifest.read_text()).get("report") or {}).get("trained", {})
        if (scores := results.get("validation")) and "mrr" in scores:
            assert scores["mrr"] > 0.1, manifest  # of vectors at random 0.007
