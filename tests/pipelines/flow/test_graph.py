"""Stages run side by side, but for those that wait for each other or want the same."""

from penstock.pipelines.flow import run_flow

MODULE = """
import time
from pathlib import Path
def make(*given, parts=1):
    began, out = time.time(), given[-1]
    out.mkdir()
    meets = False
    while out.name == "alone" and not meets and time.time() < began + 60:
        meets = any((out.parent / other).exists() for other in ("ranks", "more"))
        time.sleep(0.05)
    return {"began": began, "ended": time.time(), "meets": int(meets)}
"""
FLOW = """
parallel: 4
stages:
  alone: {python: "mine:make"}
  ranks: {python: "mine:make", parts: 2}
  more: {python: "mine:make", parts: 2}
  last: {python: "mine:make", input: ranks, after: [alone]}
"""


def test_stages_that_want_the_same_wait_for_each_other(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    report = run_flow(tmp_path / "flow.yaml")
    assert report.state == "passed", report.stages
    times = {name: one["metrics"] for name, one in report.stages.items()}
    assert times["alone"]["meets"]
    for one, other in (("ranks", "more"), ("last", "ranks"), ("last", "alone")):
        began = max(times[one]["began"], times[other]["began"])
        assert began >= min(times[one]["ended"], times[other]["ended"])
