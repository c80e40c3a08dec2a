"""The page of a run: its content, also for hostile, odd and damaged records."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from penstock.pipelines.cli import run as penstock
from penstock.pipelines.flow.records import load_run
from penstock.pipelines.report.data import gather
from penstock.pipelines.report.page import page

EVIL = "<script>alert(1)</script>\"'&"


def record(base, number=1, **body):
    folder = base / f"f-20260101-00000{number}"
    folder.mkdir(parents=True)
    whole = {
        "format": "penstock-run", "version": 1, "flow": "f", "file": "f.yaml",
        "began": f"2026-01-01T00:00:0{number}", "state": "passed", "seconds": 12.5,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(whole | body))
    return folder


def stage(value, *, met=True, metric="score", **more):
    gate = {"metric": metric, "expected": ">= 0.9", "value": value, "met": met, "note": ""}
    return {"job": "gnn train", "state": "done", "began": 10.0, "seconds": 2.25,
            "metrics": {metric: value}, "gates": [gate]} | more  # fmt: skip


def html(folder):
    return page(gather(load_run(folder)))


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_numbers_of_the_record_are_in_the_page(tmp_path):
    record(tmp_path, 1, stages={"train": stage(0.95)})
    text = html(record(tmp_path, 2, stages={"train": stage(0.97)}))
    assert "<h1>Passed: f-20260101-000002</h1>" in text
    assert "12.5 s" in text
    assert "<td>score</td><td>0.95</td><td>0.97</td>" in text
    assert "0.95 → 0.97" in text
    assert "2.250" in text


def test_what_comes_from_data_is_escaped_and_nothing_is_fetched(tmp_path):
    error = dict.fromkeys(("what", "expected", "got", "remedy"), EVIL)
    stages = {EVIL: stage(1, metric=EVIL, state=EVIL, job=EVIL, why=EVIL, error=error)}
    versions = {EVIL: EVIL}
    text = html(
        record(tmp_path, stages=stages, state=EVIL, host=EVIL, error=error, versions=versions)
    )
    tags = Tags(text).found
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not {"link", "img", "iframe"} & {tag for tag, _ in tags}
    assert not {"src", "href", "onload"} & {name for _, attrs in tags for name in attrs}
    policy = [attrs["content"] for _, attrs in tags if "http-equiv" in attrs]
    assert policy[0].startswith("default-src 'none'")


def test_hostile_names_stay_text_in_every_figure(make_run):
    evil = "</script><script>hit=1</script><img src=x onerror=hit=1>$$x$$\"'&\u2028"
    make_run(1, evil=evil)
    text = html(make_run(2, evil=evil))
    # The numbers of the charts, the library, and our own few lines: whose digests are the policy's.
    tags = Tags(text).found
    assert [attrs.get("type") for tag, attrs in tags if tag == "script"] == [
        "application/json", None, None,
    ]  # fmt: skip
    assert not {"link", "img", "iframe"} & {tag for tag, _ in tags}
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    (policy,) = [attrs["content"] for _, attrs in tags if "http-equiv" in attrs]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert len(digests) == 2
    assert "unsafe-eval" not in policy
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text)[1]
    assert not set("<>&\u2028") & set(data)
    assert "$$" not in data  # which BokehJS would take for TeX, and fetch a library
    assert len(json.loads(data)["charts"]) >= 8
    assert len(text) < 5_000_000


def test_the_command_writes_a_file(tmp_path, capsys):
    folder = record(tmp_path / "runs", stages={"a": stage(1)})
    assert penstock(["report", "--folder", str(tmp_path / "runs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(folder / "report.html")
    out = tmp_path / "other.html"
    assert penstock(["report", str(folder), "--out", str(out), "-q"]) == 0
    assert out.read_text() == (folder / "report.html").read_text()


def test_a_run_writes_its_page_and_names_it_last(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def make(out):\n    out.mkdir()\n    return {'n': 41}\n")
    flow = tmp_path / "flow.yaml"
    flow.write_text("name: f\nstages: {a: {python: 'mine:make', expect: {n: 41}}}\n")
    assert penstock(["run", str(flow), "--no-report"]) == 0
    assert not list(tmp_path.glob("runs/*/report.html"))
    capsys.readouterr()
    assert penstock(["run", str(flow)]) == 0
    (made,) = tmp_path.glob("runs/*/report.html")
    assert capsys.readouterr().out.splitlines()[-1].strip().endswith("report.html")
    assert "<td>41</td>" in made.read_text()


def test_a_run_is_compared_with_the_last_one_that_passed(tmp_path):
    record(tmp_path, 1, stages={"a": stage(1)})
    record(tmp_path, 2, state="failed", stages={"a": stage(5), "b": stage(3)})
    text = html(record(tmp_path, 3, stages={"a": stage(2), "b": stage(4)}))
    assert "Compared with f-20260101-000001 (passed)" in text
    assert "<td>score</td><td>1</td><td>2</td>" in text
    assert "<td>score</td><td></td><td>4</td>" not in text
    assert "1 → 5 → 2" in text  # the trend has every run
