"""Charts as Bokeh draws them, in a page that holds everything: the library and the numbers.

Bokeh paints on a canvas, which no style sheet reaches: a dark page inverts it. A screen reader
cannot read a canvas: the page gives it a name, and its table is below it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.pipelines.report.content import Chart, Table, number, shown

if TYPE_CHECKING:
    from bokeh.plotting import figure

# Each at least 4.5 : 1 against a white page and, inverted, against a dark one.
COLOURS = (
    "#0b62a8",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#a16207",
    "#57534e",
    "#0e7490",
    "#be185d",
    "#4d7c0f",
    "#717171",
)
_MARKERS = {
    "circle": "●",
    "square": "■",
    "triangle": "▲",
    "diamond": "◆",
    "inverted_triangle": "▼",
}
_MARKED = 25  # points of a line that have a marker, evenly spread
_AXIS = {
    "axis_label_text_color": "#1a1a1b",
    "major_label_text_color": "#1a1a1b",
    "axis_label_text_font_style": "normal",
    "axis_label_text_font_size": "12px",
    "major_label_text_font_size": "12px",
    "axis_line_color": "#767677",
    "major_tick_line_color": "#767677",
    "minor_tick_line_color": None,
}
_THEME = {
    "attrs": {
        "Plot": {
            "background_fill_color": None,
            "border_fill_color": None,
            "outline_line_color": None,
            "sizing_mode": "stretch_width",
            "toolbar_location": None,
            "min_border": 4,
        },
        "Axis": _AXIS,
        "Grid": {"grid_line_color": "#d5d7da"},
        "BasicTickFormatter": {"power_limit_high": 6, "power_limit_low": -4},
    }
}

# Draws every chart. What screen readers do not see must not take the keyboard either.
SCRIPT = """
"use strict";
(async () => {
  const skip = (one) => {
    if (one.tabIndex >= 0) one.tabIndex = -1;
    for (const inner of [...one.children, ...(one.shadowRoot?.children ?? [])]) skip(inner);
  };
  for (const item of JSON.parse(document.getElementById("charts").textContent)) {
    try {
      await Bokeh.embed.embed_item(item);
      skip(document.getElementById(item.target_id));
    } catch (error) {
      console.error(error);  // its numbers are below it
    }
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

    chart = table.chart or Chart("lines")
    draw = {"lines": _lines, "bars": _bars, "points": _points}[chart.kind]
    return json_item(draw(table, chart), target, theme=Theme(json=_THEME))


def height(table: Table) -> int:
    """Return the height of a chart in pixels."""
    kind = table.chart.kind if table.chart else ""
    return {"bars": 64 + 28 * len(table.rows), "points": 420}.get(kind, 260)


def legend(table: Table) -> list[tuple[str, str, str]]:
    """Return colour, sign and name of each series; nothing if there is only one."""
    chart = table.chart or Chart("lines")
    names = table.heads[1 + chart.skip :]
    if chart.kind == "points":
        names = _groups(chart)
    signs = ["■"] if chart.kind == "bars" else list(_MARKERS.values())
    found = [(_colour(i), signs[i % len(signs)], name) for i, name in enumerate(names)]
    return found if len(found) > 1 else []


def _groups(chart: Chart) -> list[str]:
    return list(dict.fromkeys(group for group, *_ in chart.points))


def _columns(table: Table, chart: Chart) -> list[tuple[str, list[float | None]]]:
    """Return name and numbers of every column that is drawn."""
    return [
        (_plain(table.heads[i]), [number(row[i]) for row in table.rows])
        for i in range(1 + chart.skip, len(table.heads))
    ]


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _marker(i: int) -> str:
    return [*_MARKERS][i % len(_MARKERS)]


def _figure(table: Table, chart: Chart, **more: Any) -> figure:
    from bokeh.plotting import figure

    # No tools: a finger that scrolls the page shall not move a picture.
    return figure(
        height=height(table),
        tools="",
        x_axis_label=_plain(chart.x) or None,
        y_axis_label=_plain(chart.y) or None,
        **more,
    )


def _hover(made: figure, renderers: list[Any], **tooltips: str) -> None:
    from bokeh.models import HoverTool

    # Of columns, whose values Bokeh escapes.
    made.add_tools(HoverTool(renderers=renderers, tooltips=[*tooltips.items()]))


def _lines(table: Table, chart: Chart) -> figure:
    made, renderers = _figure(table, chart), []
    firsts = [row[0] for row in table.rows]
    named = isinstance(firsts[0], str)
    at = list(range(len(firsts))) if named else firsts
    labels = [_plain(shown(one)) for one in firsts]
    if named:
        made.xaxis.ticker = at
        made.xaxis.major_label_overrides = dict(zip(at, labels, strict=True))
        made.xaxis.major_label_orientation = 0.7
    columns = _columns(table, chart)
    for i, (name, values) in enumerate(columns):
        points = [one for one in zip(at, values, labels, strict=True) if None not in one]
        x, y, where = map(list, zip(*points, strict=True)) if points else ([], [], [])
        step = max(len(points) // _MARKED, 1)
        bare = step > 1 and len(columns) == 1  # no other line is near
        marked = [float(not bare and k % step == 0) for k in range(len(points))]
        source = {"x": x, "y": y, "at": where, "name": [name] * len(points), "marked": marked}
        made.line(x, y, color=_colour(i), width=2)
        renderers.append(
            made.scatter(
                "x", "y", source=source, size=7, color=_colour(i), alpha="marked", marker=_marker(i)
            )
        )
    if chart.level is not None:
        made.line([at[0], at[-1]], [chart.level] * 2, color="#767677", line_dash=[4, 4])
    if chart.zero:
        made.y_range.start = 0
    _hover(made, renderers, series="@name", x="@at", y="@y{0.[000000]}")
    return made


def _bars(table: Table, chart: Chart) -> figure:
    rows = list(range(len(table.rows)))
    made, renderers = _figure(table, chart, y_range=(len(rows) - 0.5, -0.5)), []
    names = [_plain(shown(row[0])) for row in table.rows]
    made.x_range.start = 0
    left = [0.0] * len(rows)
    for i, (name, values) in enumerate(_columns(table, chart)):
        lengths = [value or 0.0 for value in values]
        right = [a + b for a, b in zip(left, lengths, strict=True)]
        source = {
            "y": rows,
            "left": left,
            "right": right,
            "value": lengths,
            "what": names,
            "kind": [name] * len(rows),
        }
        renderers.append(
            made.hbar(
                "y",
                left="left",
                right="right",
                height=0.7,
                source=source,
                fill_color=_colour(i),
                line_color="white",
            )
        )
        left = right
    made.yaxis.ticker = rows
    made.yaxis.major_label_overrides = {i: _plain(name, 18) or " " for i, name in enumerate(names)}
    made.ygrid.visible = False
    _hover(made, renderers, what="@what", kind="@kind", value="@value{0.[000000]}")
    return made


def _points(table: Table, chart: Chart) -> figure:
    made, renderers = _figure(table, chart, match_aspect=True), []
    for i, group in reversed([*enumerate(_groups(chart))]):  # the first on top
        inside = [one for one in chart.points if one[0] == group]
        source = {
            "x": [one[1] for one in inside],
            "y": [one[2] for one in inside],
            "what": [_plain(one[3], 130) for one in inside],
        }
        size = 5 if len(chart.points) > 500 else 7
        renderers.append(
            made.scatter(
                "x", "y", source=source, marker=_marker(i), size=size, color=_colour(i), alpha=0.75
            )
        )
    _hover(made, renderers, id="@what")
    return made


def _plain(text: str, longest: int = 60) -> str:
    r"""Return text that BokehJS draws unchanged: delimiters of TeX are broken up.

    For TeX, in ``$$``, ``\(`` or ``\[``, it would fetch a library from elsewhere.
    """
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return re.sub(r"\$(?=\$)|\\(?=[(\[)\]])", "\\g<0>\u200b", cut)
