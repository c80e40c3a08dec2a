"""The pieces of HTML that make up pages; every text that is passed in is escaped here."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 2000  # characters of one text: a stage's error may hold a whole log

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1a1a1a; --line: #767676; --soft: #f3f4f6;
  --bar: #0b62a8; --good: #126b2e; --bad: #a8141c; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --text: #ececec; --line: #8d8d8d;
  --soft: #22262b; --bar: #6cb6f2; --good: #6fd38a; --bad: #ff8f8f; } }
* { box-sizing: border-box; }
body { background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif;
  max-width: 76rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0; } a { color: var(--bar); }
.scroll { overflow-x: auto; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible
  { outline: 2px solid var(--bar); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; overflow-wrap: normal; }
.narrow { max-width: 44rem; }
caption { text-align: left; padding: .3rem 0; font-weight: 600; }
.scroll + .scroll, .scroll + details, details + .scroll { margin-top: 1rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); min-width: 5.5rem; overflow-wrap: anywhere; }
thead th { overflow-wrap: normal; } tbody th { overflow-wrap: break-word; max-width: 16rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem .8rem;
  margin: .3rem 0 1rem; }
dt { font-weight: 600; } dd { margin: 0; min-width: 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
.bar { width: 100%; height: 1rem; min-width: 6rem; } .bar rect { fill: var(--bar); }
"""


def document(
    title: str, body: str, *, style: str = "", scripts: Sequence[str] = (), data: str = ""
) -> str:
    """Return a whole page that fetches nothing; ``body`` is HTML, the scripts are our own.

    scripts  run in this order at the end of the page, and no others: the policy names their SHA-256
    data     JSON that they read from the element ``charts``
    """
    sources = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    policy += f"; img-src data:; script-src {sources}" if scripts else ""
    tail = f'<script type="application/json" id="charts">{_inert(data)}</script>' if data else ""
    tail += "".join(f"<script>{script}</script>" for script in scripts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title>"
        f"<style>{STYLE}{style}</style></head><body>{body}{tail}</body></html>\n"
    )


def safe(value: str) -> str:
    """Return text that is no markup, not too long, and can be written as UTF-8."""
    cut = value if len(value) <= _LONGEST else value[:_LONGEST] + " …"
    return escape(cut.encode("utf-8", "replace").decode())


def section(title: str, inner: str) -> str:
    """Return a heading with the content below it; ``inner`` is HTML."""
    anchor = title.lower().replace(" ", "-")
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{inner}</section>'


def folded(title: str, inner: str) -> str:
    """Return HTML that is opened by its title."""
    return f"<details><summary>{safe(title)}</summary>{inner}</details>"


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    last: tuple[str, Sequence[str]] | None = None,
    links: Sequence[str] = (),
) -> str:
    """Return a table; all that it is given is escaped but what is ours.

    last   a column of our HTML
    links  our addresses, which the first cells of the rows link to
    """
    titles = [*heads, *([last[0]] if last else [])]
    narrow = ' class="narrow"' if len(titles) <= 3 else ""
    head = "".join(f'<th scope="col">{safe(title)}</th>' for title in titles)
    lines = []
    for index, (first, *others) in enumerate(rows):
        cells = "".join(f"<td>{safe(cell)}</td>" for cell in others)
        cells += f"<td>{last[1][index]}</td>" if last else ""
        name = f'<a href="{links[index]}">{safe(first)}</a>' if links else safe(first)
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" aria-label="{safe(caption)}" tabindex="0">'
        f"<table{narrow}><caption>{safe(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inert(data: str) -> str:
    """Return JSON that no parser of HTML takes for anything but text."""
    for sign in "<>&\u2028\u2029":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return data.encode("utf-8", "replace").decode()
