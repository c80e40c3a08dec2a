"""What the documentation site does to the guides, which are written to be read in the repository.

A link that leaves docs/ leads nowhere on the site, and becomes its text.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]*)\)")
_FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)


def without_outside_links(text: str) -> str:
    """Return Markdown whose links to ``../`` are their texts; code stays as it is."""
    parts, end = [], 0
    for block in _FENCE.finditer(text):
        parts += [_LINK.sub(r"\1", text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(r"\1", text[end:])])


def one_package(root: Path, folder: Path) -> None:
    """Copy the folders of the repository to ``folder`` as they lie in the installed package."""
    package, only_sources = folder / "penstock", shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "penstock", package, ignore=only_sources)
    for name in ("kernels", "partition", "workers", "cluster", "pipelines"):
        shutil.copytree(root / name, package / name, ignore=only_sources)


_made = tempfile.TemporaryDirectory(prefix="penstock-site-")


@event_priority(100)  # before mkdocstrings, which looks up its paths in the same event
def on_config(config: Any, **_: Any) -> Any:
    """Have mkdocstrings read the sources, where penstock's folders are one package."""
    root = Path(config.config_file_path).parent
    if not Path(_made.name, "penstock").exists():
        one_package(root, Path(_made.name))
    handlers = config.plugins["mkdocstrings"].config["handlers"]
    handlers.setdefault("python", {})["paths"] = [_made.name]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite a page before it is rendered: mkdocs calls this."""
    return without_outside_links(markdown)
