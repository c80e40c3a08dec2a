"""Charts as Bokeh draws them, in a page that holds everything: the library, the numbers, a legend.

Bokeh paints on a canvas, which no style sheet reaches. Its colours are therefore names of a table
here, written as the light ones, and our script swaps them if the page is dark. A screen reader
cannot read a canvas: it is hidden from them, and a table is below it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.report.charts import Chart
from penstock.pipelines.report.html import folded, safe, table

if TYPE_CHECKING:
    from bokeh.plotting import figure

# Light and dark; each at least 3 : 1 against its page.
_SERIES = (
    ("#0b62a8", "#6cb6f2"), ("#c2410c", "#fb923c"), ("#15803d", "#6fd38a"),
    ("#7e22ce", "#c4a0ff"), ("#a16207", "#facc15"), ("#be185d", "#f9a8d4"),
    ("#0e7490", "#67e8f9"), ("#57534e", "#d6d3d1"), ("#4d7c0f", "#bef264"),
    ("#717171", "#9ca3ae"),
)  # fmt: skip
_TEXT, _AXIS, _GRID = ("#1a1a1b", "#ececed"), ("#767677", "#8d8d8e"), ("#e3e4e6", "#33373d")
_PAGE = ("#fffffe", "#16181b")
_DASHES = ((), (7, 4), (2, 3), (9, 3, 2, 3), (12, 5))
_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle")
_SHAPES = {
    "circle": '<circle cx="6" cy="6" r="4.5"/>',
    "square": '<rect x="2" y="2" width="8" height="8"/>',
    "triangle": '<polygon points="6,1 11,10.5 1,10.5"/>',
    "diamond": '<polygon points="6,0.5 10,6 6,11.5 2,6"/>',
    "inverted_triangle": '<polygon points="1,1.5 11,1.5 6,11"/>',
}
_FEW = 25  # points of a line that are marked each
_LONGEST = 18  # characters next to an axis

STYLE = (
    ":root {" + "".join(f" --s{i}: {one[0]};" for i, one in enumerate(_SERIES)) + " }\n"
    "@media (prefers-color-scheme: dark) { :root {"
    + "".join(f" --s{i}: {one[1]};" for i, one in enumerate(_SERIES))
    + """ } }
.charts { display: grid; gap: 1rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.charts > * { min-width: 0; } .charts > .whole { grid-column: 1 / -1; }
figure { margin: 0; border: 1px solid var(--line); border-radius: .4rem; padding: .7rem; }
figcaption p { margin: .1rem 0 .4rem; font-size: .9rem; }
.plot { width: 100%; overflow: hidden; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: 0 0 .3rem;
  padding: 0; font-size: .9rem; }
.legend li { display: flex; align-items: center; gap: .35rem; min-width: 0; }
.legend svg { flex: none; height: .75rem; } .legend line { stroke-width: 2.5; }
details { margin-top: .5rem; } summary { cursor: pointer; padding: .2rem 0; }
details .scroll { max-height: 24rem; overflow-y: auto; }
"""
)

# Draws every chart, and again if the reader changes between light and dark.
_SCRIPT = """
"use strict";
(() => {
  const {charts, dark} = JSON.parse(document.getElementById("charts").textContent);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  function recoloured(value, colour) {
    if (typeof value === "string") return colour && scheme.matches ? dark[value] ?? value : value;
    if (Array.isArray(value)) return value.map((one) => recoloured(one, colour));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(
      ([key, one]) => [key, recoloured(one, colour || /color$/.test(key))]));
  }
  // What screen readers do not see must not take the keyboard either.
  function skipped(one) {
    if (one.tabIndex >= 0) one.tabIndex = -1;
    for (const inner of [...one.children, ...(one.shadowRoot?.children ?? [])]) skipped(inner);
  }
  let drawn = [], turn = 0;
  async function draw() {
    const mine = ++turn;
    for (const views of drawn.splice(0)) views.clear();
    for (const {target, item} of charts) {
      const place = document.getElementById(target);
      place.replaceChildren();
      try {
        const views = await Bokeh.embed.embed_item(recoloured(item, false), target);
        if (mine !== turn) { views.clear(); return; }
        drawn.push(views);
        skipped(place);
      } catch (error) {
        console.error(error);
        place.textContent = "This figure cannot be drawn here; its numbers are below.";
      }
    }
    document.documentElement.dataset.drawn = charts.length;
  }
  scheme.addEventListener("change", draw);
  draw();
})();
"""


class Drawings:
    """The charts of one page: their HTML, and what the scripts at its end need."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []

    def html(self, chart: Chart) -> str:
        """Return a chart's place in the page: caption, legend, canvas, and the table behind it."""
        name = f"chart-{len(self._items) + 1}"
        if any(one.x for one in chart.series):
            self._items.append({"target": name, "item": _item(chart)})
            height = _height(chart)
            plot = f'<div class="plot" id="{name}" aria-hidden="true" style="height:{height}px">'
            plot = f"{_legend(chart)}{plot}</div>"
        else:
            plot = ""
        wide = ' class="whole"' if chart.kind == "bars" else ""
        shown = table(chart.table.caption, chart.table.heads, chart.table.rows)
        return (
            f'<figure{wide} aria-labelledby="{name}-title"><figcaption>'
            f'<h3 id="{name}-title">{safe(chart.title)}</h3><p>{safe(chart.about)}</p></figcaption>'
            f"{plot}{folded(f'Numbers of {chart.title}', shown)}</figure>"
        )

    @property
    def scripts(self) -> tuple[str, ...]:
        """The scripts that draw the charts; empty if there is no chart."""
        return (_library(), _SCRIPT) if self._items else ()

    @property
    def data(self) -> str:
        """The charts as JSON; empty if there is none."""
        if not self._items:
            return ""
        dark = dict((*_SERIES, _TEXT, _AXIS, _GRID, _PAGE))
        return json.dumps({"charts": self._items, "dark": dark}, separators=(",", ":"))


def _library() -> str:
    """Return BokehJS, without the parts that no chart here uses."""
    from bokeh.resources import Resources

    script = "\n".join(Resources("inline", components=["bokeh"], log_level="error").js_raw)
    return re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE)


def _item(chart: Chart) -> Any:
    from bokeh.embed import json_item

    draw = {"lines": _lines, "bars": _bars, "points": _points}[chart.kind]
    return _renumbered(json_item(draw(chart)))


def _renumbered(item: Any) -> Any:
    """Return an item with its ids counted from 1: the same run then has the same page."""
    known: dict[str, str] = {}

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            key: known.setdefault(one, f"p{len(known) + 1}")
            if key in ("id", "root_id") and isinstance(one, str)
            else of(one)
            for key, one in value.items()
        }

    return of(item)


def _height(chart: Chart) -> int:
    if chart.kind == "bars":
        return 64 + 28 * max(len(chart.categories), 1)
    return 420 if chart.kind == "points" else 260


def _figure(chart: Chart, **more: Any) -> figure:
    from bokeh.models import BasicTickFormatter
    from bokeh.plotting import figure

    kinds = {f"{axis}_axis_type": "log" for axis, log in zip("xy", chart.log, strict=True) if log}
    # No tools but hovering: a finger that scrolls the page shall not move a picture.
    made = figure(
        height=_height(chart), sizing_mode="stretch_width", toolbar_location=None, tools="",
        background_fill_color=None, border_fill_color=None, outline_line_color=None,
        min_border=4, match_aspect=chart.equal, **kinds, **more,
    )  # fmt: skip
    for axis, title, log in zip((*made.xaxis, *made.yaxis), (chart.x, chart.y), chart.log,
                                strict=True):  # fmt: skip
        axis.axis_label = plain(title, 60) or None
        axis.axis_label_text_color = axis.major_label_text_color = _TEXT[0]
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
        axis.axis_line_color = axis.major_tick_line_color = _AXIS[0]
        axis.minor_tick_line_color = None
        if not log:
            axis.formatter = BasicTickFormatter(power_limit_high=6, power_limit_low=-4)
    for grid in made.grid:
        grid.grid_line_color = _GRID[0]
    return made


def _hover(made: figure, renderers: Sequence[Any], **rows: str) -> None:
    from bokeh.models import HoverTool

    # Columns, not names: Bokeh escapes the values of placeholders.
    made.add_tools(HoverTool(renderers=list(renderers), tooltips=[*rows.items()]))


def _lines(chart: Chart) -> figure:
    from bokeh.models import ColumnDataSource

    made = _figure(chart)
    renderers = []
    for i, one in enumerate(chart.series):
        colour, dash = _SERIES[i % len(_SERIES)][0], _DASHES[i % len(_DASHES)]
        source = ColumnDataSource(
            {"x": list(one.x), "y": list(one.y), "name": [plain(one.name)] * len(one.x)}
        )
        made.line("x", "y", source=source, line_color=colour, line_width=2, line_dash=list(dash))
        few = len(one.x) <= _FEW
        renderers.append(
            made.scatter("x", "y", source=source, size=6 if few else 4, line_color=None,
                         fill_color=colour, fill_alpha=1.0 if few else 0.0)
        )  # fmt: skip
    if chart.level is not None and math.isfinite(chart.level):
        ends = [min(one.x[0] for one in chart.series), max(one.x[-1] for one in chart.series)]
        made.line(ends, [chart.level] * 2, line_color=_AXIS[0], line_dash=[4, 4])
    if chart.from_zero:
        made.y_range.start = 0
    if all(value == int(value) for one in chart.series for value in one.x if value < 1e9):
        made.xaxis.ticker.mantissas = [1, 2, 5] if not chart.log[0] else [1]
        if not chart.log[0]:
            made.xaxis.ticker.min_interval = 1
    _hover(made, renderers, series="@name", x="@x{0.[000000]}", y="@y{0.[000000]}")
    return made


def _bars(chart: Chart) -> figure:
    from bokeh.models import ColumnDataSource, FixedTicker

    count = len(chart.categories)
    made = _figure(chart, y_range=(count - 0.5, -0.5))
    made.x_range.start = 0
    left = [0.0] * count
    renderers = []
    for i, one in enumerate(chart.series):
        right = [a + b for a, b in zip(left, one.x, strict=True)]
        source = ColumnDataSource({
            "y": list(range(count)), "left": left, "right": right, "value": list(one.x),
            "what": [plain(name, 80) for name in chart.categories],
            "kind": [plain(one.name)] * count,
        })  # fmt: skip
        renderers.append(
            made.hbar("y", left="left", right="right", height=0.7, source=source,
                      fill_color=_SERIES[i % len(_SERIES)][0], line_color=_PAGE[0])
        )  # fmt: skip
        left = right
    made.yaxis.ticker = FixedTicker(ticks=list(range(count)))
    made.yaxis.major_label_overrides = {
        i: plain(name, _LONGEST) or " " for i, name in enumerate(chart.categories)
    }
    made.ygrid.grid_line_color = None
    _hover(made, renderers, what="@what", kind="@kind", value="@value{0.[000000]}")
    return made


def _points(chart: Chart) -> figure:
    from bokeh.models import ColumnDataSource

    made = _figure(chart)
    count = sum(len(one.x) for one in chart.series)
    renderers = []
    for i, one in reversed([*enumerate(chart.series)]):  # the first on top, the others below
        source = ColumnDataSource({
            "x": list(one.x), "y": list(one.y),
            "what": [plain(label, 130) for label in one.labels] or [""] * len(one.x),
        })  # fmt: skip
        renderers.append(
            made.scatter("x", "y", source=source, marker=_MARKERS[i % len(_MARKERS)],
                         size=5 if count > 500 else 7, line_color=None, fill_alpha=0.75,
                         fill_color=_SERIES[i % len(_SERIES)][0])
        )  # fmt: skip
    _hover(made, renderers, what="@what", x="@x{0.[0000]}", y="@y{0.[0000]}")
    return made


def _legend(chart: Chart) -> str:
    """Return the legend of the series; empty if there is only one."""
    if len(chart.series) < 2:
        return ""
    lines = []
    for i, one in enumerate(chart.series):
        colour = f"var(--s{i % len(_SERIES)})"
        if chart.kind == "lines":
            dash = " ".join(map(str, _DASHES[i % len(_DASHES)]))
            key = (
                f'<svg width="28" viewBox="0 0 28 12"><line x1="0" x2="28" y1="6" y2="6" '
                f'style="stroke:{colour}" stroke-dasharray="{dash}"/></svg>'
            )
        else:
            shape = "square" if chart.kind == "bars" else _MARKERS[i % len(_MARKERS)]
            key = (
                f'<svg width="12" viewBox="0 0 12 12" style="fill:{colour}">{_SHAPES[shape]}</svg>'
            )
        lines.append(f"<li>{key}<span>{safe(one.name[:60])}</span></li>")
    return f'<ul class="legend" aria-label="Legend">{"".join(lines)}</ul>'


def plain(value: str, longest: int = 60) -> str:
    r"""Return text that BokehJS draws unchanged: delimiters of TeX are broken up.

    For TeX, in ``$$``, ``\(`` or ``\[``, it would fetch a library from elsewhere.
    """
    cut = value if len(value) <= longest else f"{value[: longest - 1]}…"
    cut = "".join(sign if sign.isprintable() else " " for sign in cut)
    cut = re.sub(r"\\(?=[(\[)\]])", "\\\\\u200b", cut)
    return re.sub(r"\$(?=\$)", "$\u200b", cut)
