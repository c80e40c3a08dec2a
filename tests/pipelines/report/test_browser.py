"""What readers see: pages in a headless Chromium, wide and narrow, light and dark, by keyboard."""

import threading

import pytest

from penstock.pipelines.flow.records import load_run
from penstock.pipelines.report.command import write_report
from penstock.pipelines.report.serve import RunServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EVIL = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>$$x$$\"'&"
DRAWN = "document.documentElement.dataset.drawn"
# The canvases of a chart, which Bokeh makes in shadow roots; whether every chart has a painted one.
CANVASES = """const canvases = (one) => [...(one.shadowRoot ?? one).querySelectorAll("*")].flatMap(
  (inner) => inner.tagName === "CANVAS" ? [inner] : inner.shadowRoot ? canvases(inner) : []);
  const pixels = (canvas) => canvas.width && canvas.height
    ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];"""
PAINTED = f"""(() => {{ {CANVASES}
  return [...document.querySelectorAll(".plot")].every((plot) => canvases(plot.firstElementChild)
    .some((canvas) => pixels(canvas).some((value) => value))); }})()"""
TOOLTIPS = """(() => { const inner = (one) => [...(one.shadowRoot ?? one).querySelectorAll("*")]
  .flatMap((other) => other.shadowRoot ? [other, ...inner(other)] : [other]);
  const images = inner(document).filter((one) => one.tagName === "IMG");
  if (images.length) throw new Error("an image was made of data");
  return inner(document).filter((one) => String(one.className).includes("bk-Tooltip"))
    .map((one) => inner(one).filter((other) => other.tagName !== "STYLE" && !other.children.length)
      .map((other) => other.textContent).join(" ")); })()"""
# What the keyboard reaches within charts, also in shadow roots.
STOPS = """(() => { const inner = (one) =>
  [one, ...one.children, ...(one.shadowRoot?.children ?? [])]
  .flatMap((other) => other === one ? [one] : inner(other));
  return [...document.querySelectorAll(".plot")].flatMap(inner)
    .filter((one) => one.tabIndex >= 0).length; })()"""
# The cells of one word that is broken.
BROKEN = """[...document.querySelectorAll("tbody td, tbody th")].filter((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  const ends = [...range.getClientRects()].map((one) => one.bottom);
  return /^[^ -]+$/.test(one.textContent) && Math.max(...ends) - Math.min(...ends) > 12;
  }).map((one) => one.textContent)"""


@pytest.fixture
def report(make_run):
    """Give a page with every kind of figure, and of two runs before it."""
    make_run(1)
    make_run(2)
    return write_report(load_run(make_run(3)))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_drawn_and_nothing_overflows(browser, report, width, dark, tmp_path):
    browser.open(report.as_uri(), width=width, dark=dark)
    browser.wait(DRAWN)
    browser.wait(PAINTED)
    assert browser.run("document.documentElement.scrollWidth") <= width
    boxes = "[...document.querySelectorAll('figure, .scroll')]"
    assert browser.run(f"{boxes}.every((one) => one.scrollWidth <= one.clientWidth + 1)")
    assert browser.run(BROKEN) == []
    gate = "[...document.querySelectorAll('td')].find((one) => one.textContent === 'met')"
    left, right = browser.run(
        f"(({{left, right}}) => [left, right])({gate}.getBoundingClientRect())"
    )
    assert 0 <= left < right <= width
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
    browser.screenshot(tmp_path / "page.png")
    assert browser.errors == []


def test_hostile_names_do_nothing(browser, make_run):
    make_run(1, evil=EVIL)
    path = write_report(load_run(make_run(2, evil=EVIL)))
    browser.open(path.as_uri(), height=2000)
    browser.wait(DRAWN)
    browser.wait(PAINTED)
    # Over the points: what is shown of them holds an id, in a tooltip that Bokeh makes.
    section = "[...document.querySelectorAll('h2')].find((one) => one.textContent === 'Embeddings')"
    plot = f"[...{section}.parentElement.querySelectorAll('.plot')].at(-1)"
    browser.run(f"{plot}.scrollIntoView()")
    left, top, wide, high = browser.run(
        f"(({{x, y, width, height}}) => [x, y, width, height])({plot}.getBoundingClientRect())"
    )
    shown = set()
    for i in range(600):
        spot = {"x": left + wide * (0.1 + i % 30 / 34), "y": top + high * (0.05 + i // 30 / 24)}
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", **spot)
        browser.run("new Promise(requestAnimationFrame)")
        shown |= set(browser.run(TOOLTIPS))
        if len(shown) > 3:
            break
    assert any(EVIL[:30] in text for text in shown), shown
    assert browser.run("window.hit") is None
    assert browser.run("document.images.length") == 0
    assert EVIL in browser.run("document.querySelector('main').textContent")
    assert browser.errors == []


def test_a_screen_reader_has_a_name_and_a_table_for_every_figure(browser, report):
    browser.open(report.as_uri())
    browser.wait(DRAWN)
    tree = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = [one["role"]["value"] for one in tree if not one["ignored"] and "role" in one]
    names = {one["name"]["value"] for one in tree if one.get("role", {}).get("value") == "figure"}
    assert roles.count("figure") == browser.run("document.querySelectorAll('figure').length")
    assert "model: loss" in names
    assert "Canvas" not in roles
    figures = "[...document.querySelectorAll('figure')]"
    assert browser.run(f"{figures}.every((one) => one.querySelector('details table'))")
    assert browser.run(STOPS) == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_runs_and_reports_that_are_served(browser, make_run, width):
    folder = make_run()
    server = RunServer(folder.parent, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        browser.open(server.address, width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        link = browser.run("document.querySelector('a').href")
        browser.open(link, width=width)
        browser.wait(DRAWN)
        browser.wait(PAINTED)
        assert browser.errors == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
