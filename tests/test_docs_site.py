"""The documentation site: links that leave docs/ become text, and it builds without a warning."""

import importlib.util
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.fixture
def hooks(root):
    if find_spec("mkdocs") is None:
        pytest.skip("needs mkdocs: pip install '.[docs]'")
    spec = importlib.util.spec_from_file_location("site_hooks", root / "docs/site/hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_that_leave_become_their_text(hooks):
    text = "a [b](../c.md#d), [e](f.md)\n\n```md\n[b](../c.md)\n```\n[g](../h)\n"
    assert hooks.without_outside_links(text) == ("a b, [e](f.md)\n\n```md\n[b](../c.md)\n```\ng\n")


def test_every_public_name_has_its_docstring_there(root):
    import penstock

    page = (root / "docs/python.md").read_text()
    for name, home in penstock._HOME.items():
        ours = getattr(penstock, name).__module__
        assert f"::: {ours}.{name}\n" in page, (name, home)


def test_every_page_is_in_the_navigation(root):
    nav = (root / "mkdocs.yml").read_text().split("\nnav:\n")[1].split("\nvalidation:")[0]
    assert {path.name for path in (root / "docs").glob("*.md")} == set(re.findall(r"\w+\.md", nav))


@pytest.mark.slow
def test_the_site_builds_without_a_warning(hooks, root, tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["--site-dir", str(tmp_path / "site")]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    page = (tmp_path / "site/python/index.html").read_text()
    assert "partition_graph" in page
    assert not (tmp_path / "site/site/hooks.py").exists()
