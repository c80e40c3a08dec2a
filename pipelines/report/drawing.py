"""Charts as Bokeh draws them, in a page that holds everything: the library and the numbers.

Bokeh paints on a canvas, which no style sheet reaches: a dark page inverts it. A screen reader
cannot read a canvas: the page gives it a name, and its table is below it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.pipelines.report.content import Table, number, shown

if TYPE_CHECKING:
    from bokeh.plotting import figure

# Each at least 3 : 1 against a white page and, inverted, against a dark one.
COLOURS = (
    "#0b62a8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#57534e", "#0e7490", "#be185d",
    "#4d7c0f", "#717171",
)  # fmt: skip
_MARKERS = {
    "circle": "●", "square": "■", "triangle": "▲", "diamond": "◆", "inverted_triangle": "▼",
}  # fmt: skip
_MARKED = 25  # points of a line that have a marker, evenly spread
_AXIS = {
    "axis_label_text_color": "#1a1a1b", "major_label_text_color": "#1a1a1b",
    "axis_label_text_font_style": "normal", "axis_label_text_font_size": "12px",
    "major_label_text_font_size": "12px", "axis_line_color": "#767677",
    "major_tick_line_color": "#767677", "minor_tick_line_color": None,
}  # fmt: skip
_THEME = {
    "attrs": {
        "Plot": {
            "background_fill_color": None, "border_fill_color": None, "outline_line_color": None,
            "sizing_mode": "stretch_width", "toolbar_location": None, "min_border": 4,
        },
        "Axis": _AXIS,
        "Grid": {"grid_line_color": "#d5d7da"},
        "BasicTickFormatter": {"power_limit_high": 6, "power_limit_low": -4},
    }
}  # fmt: skip

# Draws every chart. What screen readers do not see must not take the keyboard either.
SCRIPT = """
"use strict";
(async () => {
  const skip = (one) => {
    if (one.tabIndex >= 0) one.tabIndex = -1;
    for (const inner of [...one.children, ...(one.shadowRoot?.children ?? [])]) skip(inner);
  };
  for (const item of JSON.parse(document.getElementById("charts").textContent)) {
    await Bokeh.embed.embed_item(item);
    skip(document.getElementById(item.target_id));
  }
  document.documentElement.dataset.drawn = "yes";
})();
"""


def library() -> str:
    """Return BokehJS, without the parts that no chart here uses."""
    from bokeh.resources import Resources

    script = "\n".join(Resources("inline", components=["bokeh"], log_level="error").js_raw)
    return re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE)


def item(table: Table, target: str) -> Any:
    """Return what BokehJS draws a table's chart from, into the element ``target``."""
    from bokeh.embed import json_item
    from bokeh.themes import Theme

    assert table.chart is not None
    draw = {"lines": _lines, "bars": _bars, "points": _points}[table.chart.kind]
    return json_item(draw(table), target, theme=Theme(json=_THEME))


def height(table: Table) -> int:
    """Return the height of a chart in pixels."""
    kind = table.chart.kind if table.chart else ""
    return {"bars": 64 + 28 * len(table.rows), "points": 420}.get(kind, 260)


def legend(table: Table) -> list[tuple[str, str, str]]:
    """Return colour, sign and name of each series; nothing if there is only one."""
    names = _series(table)
    bars = table.chart is not None and table.chart.kind == "bars"
    signs = ["■"] if bars else list(_MARKERS.values())
    found = [(_colour(i), signs[i % len(signs)], name) for i, name in enumerate(names)]
    return found if len(found) > 1 else []


def _series(table: Table) -> list[str]:
    assert table.chart is not None
    if table.chart.kind == "points":
        return list(dict.fromkeys(group for group, *_ in table.chart.points))
    return list(table.heads[1 + table.chart.skip :])


def _columns(table: Table) -> list[tuple[str, list[float | None]]]:
    """Return name and numbers of every column that is drawn."""
    names = _series(table)
    first = len(table.heads) - len(names)
    return [
        (_plain(name), [number(row[first + i]) for row in table.rows])
        for i, name in enumerate(names)
    ]


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _figure(table: Table, tooltips: dict[str, str], **more: Any) -> figure:
    from bokeh.models import HoverTool
    from bokeh.plotting import figure

    chart = table.chart
    assert chart is not None
    if chart.log:
        more |= {"x_axis_type": "log", "y_axis_type": "log"}
    # No tools but hovering: a finger that scrolls the page shall not move a picture. Tooltips name
    # columns, whose values Bokeh escapes.
    made = figure(height=height(table), tools=[], x_axis_label=_plain(chart.x) or None,
                  y_axis_label=_plain(chart.y) or None, **more)  # fmt: skip
    made.add_tools(HoverTool(tooltips=[*tooltips.items()]))
    return made


def _lines(table: Table) -> figure:
    assert table.chart is not None
    made = _figure(table, {"series": "@name", "x": "@at", "y": "@y{0.[000000]}"})
    firsts = [row[0] for row in table.rows]
    named = isinstance(firsts[0], str)
    at = list(range(len(firsts))) if named else firsts
    if named:
        made.xaxis.ticker = at
        made.xaxis.major_label_overrides = dict(
            zip(at, [_plain(shown(one)) for one in firsts], strict=True)
        )
        made.xaxis.major_label_orientation = 0.7
    for i, (name, values) in enumerate(_columns(table)):
        pairs = [(x, y) for x, y in zip(at, values, strict=True) if None not in (x, y)]
        step = max(len(pairs) // _MARKED, 1)
        made.line([x for x, _ in pairs], [y for _, y in pairs], color=_colour(i), width=2)
        source = {
            "x": [x for x, _ in pairs], "y": [y for _, y in pairs], "name": [name] * len(pairs),
            "at": [_plain(shown(firsts[x] if named else x)) for x, _ in pairs],
            "size": [0 if k % step else 7 for k in range(len(pairs))],
        }  # fmt: skip
        made.scatter("x", "y", source=source, size="size", color=_colour(i),
                     marker=[*_MARKERS][i % len(_MARKERS)])  # fmt: skip
    if table.chart.level is not None:
        ends = [at[0], at[-1]]
        made.line(ends, [table.chart.level] * 2, color="#767677", line_dash=[4, 4])
    if table.chart.zero:
        made.y_range.start = 0
    return made


def _bars(table: Table) -> figure:
    rows = range(len(table.rows))
    made = _figure(table, {"what": "@what", "kind": "@kind", "value": "@value{0.[000000]}"},
                   y_range=(len(rows) - 0.5, -0.5))  # fmt: skip
    names = [_plain(shown(row[0])) for row in table.rows]
    made.x_range.start = 0
    left = [0.0] * len(rows)
    for i, (name, values) in enumerate(_columns(table)):
        lengths = [value or 0.0 for value in values]
        right = [a + b for a, b in zip(left, lengths, strict=True)]
        source = {"y": [*rows], "left": left, "right": right, "value": lengths, "what": names,
                  "kind": [name] * len(rows)}  # fmt: skip
        made.hbar("y", left="left", right="right", height=0.7, source=source,
                  fill_color=_colour(i), line_color="white")  # fmt: skip
        left = right
    made.yaxis.ticker = [*rows]
    made.yaxis.major_label_overrides = {i: _plain(name, 18) or " " for i, name in enumerate(names)}
    made.ygrid.visible = False
    return made


def _points(table: Table) -> figure:
    assert table.chart is not None
    made = _figure(table, {"id": "@what"}, match_aspect=True)
    points = table.chart.points
    groups = list(enumerate(_series(table)))
    for i, group in reversed(groups):  # the first on top
        inside = [one for one in points if one[0] == group]
        source = {"x": [one[1] for one in inside], "y": [one[2] for one in inside],
                  "what": [_plain(one[3], 130) for one in inside]}  # fmt: skip
        made.scatter("x", "y", source=source, marker=[*_MARKERS][i % len(_MARKERS)],
                     size=5 if len(points) > 500 else 7, color=_colour(i), alpha=0.75)  # fmt: skip
    return made


def _plain(text: str, longest: int = 60) -> str:
    r"""Return text that BokehJS draws unchanged: delimiters of TeX are broken up.

    For TeX, in ``$$``, ``\(`` or ``\[``, it would fetch a library from elsewhere.
    """
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return re.sub(r"\$(?=\$)|\\(?=[(\[)\]])", "\\g<0>\u200b", cut)
