"""What docs/embed.md shows can be typed, and every option is told of."""

from __future__ import annotations

import re
import shlex

import pytest

from penstock.options import flag
from penstock.pipelines.cli import app
from penstock.pipelines.embed.options import (
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)

ELSEWHERE = {"overwrite", "verify", "seed"}  # what every job has


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/embed.md").read_text()


@pytest.mark.parametrize("options", [EmbedOptions, EvaluateOptions, PredictOptions, ExportOptions])
def test_every_option_is_told_of(page, options):
    words = set(re.findall(r"--?[a-z0-9-]+", page))
    names = set(options.__dataclass_fields__) - ELSEWHERE
    spelled = {name: {flag(name), *(["-k"] if name in ("top", "parts") else [])} for name in names}
    negated = {name: flags | {flag("no_" + name)} for name, flags in spelled.items()}
    assert not {name for name, flags in negated.items() if not flags & words}


def test_commands_can_be_typed(page, root):
    shown = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    shown += re.findall(r"```sh\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    lines = [line for block in shown for part in block.splitlines() for line in part.split(" && ")]
    ours = [line for line in lines if line.startswith("penstock embed")]
    assert len(ours) > 6
    for line in ours:
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_examples_train_until_vectors_are_better_than_chance(page):
    """Two epochs of the generated graph have an MRR of 0.001, and ten one of 0.32."""
    lines = re.findall(r"^penstock embed train .*", page, re.MULTILINE)
    epochs = [
        int(re.search(r"--epochs (\d+)", line)[1])
        for line in lines
        if "--parts" in line or "--partitions" in line
    ]
    assert len(epochs) == 2
    assert min(epochs) >= 10


def test_recipes_are_where_the_page_says(root):
    assert len(list((root / "examples/fb15k-237").glob("*.yaml"))) == 5
