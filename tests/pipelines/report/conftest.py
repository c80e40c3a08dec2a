"""What tests of pages share: a run with outputs, and the tables of a page."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from made import make_record


class Page(HTMLParser):
    """A page as it was read.

    tags    names and attributes of its elements
    tables  rows of texts under the caption of each table, as "stage: metric"
    rows    rows of texts of all tables
    text    all of its text but scripts
    charts  what Bokeh draws, by the name of its figure
    """

    def __init__(self, html):
        super().__init__()
        self.tags, self.tables, self.text, self.scripts = [], {}, "", []
        self._open, self._rows = [], []
        self.feed(html)
        self.rows = [row for table in self.tables.values() for row in table]
        items = iter(json.loads(self.scripts[0]) if "charts" in html and self.scripts else [])
        self.charts, title = {}, ""
        for tag, attrs in self.tags:
            title = attrs["aria-label"] if tag == "figure" else title
            if attrs.get("class") == "plot":
                self.charts[title] = next(items)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append("")
        elif tag == "caption":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass
        if tag == "caption":
            self.tables[self._caption] = self._rows

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts[-1] += data
            return
        self.text += data
        if "caption" in self._open:
            self._caption += data
        elif {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data

    def stages(self, which):
        """Return how many of the tables, or charts, each stage has: captions begin with it."""
        return Counter(name.partition(":")[0] for name in which if ":" in name)

    def columns(self, chart):
        """Return the columns of numbers of a chart, one dict for each glyph."""
        found = []

        def look(one):
            if isinstance(one, dict):
                if one.get("name") == "ColumnDataSource":
                    found.append(dict(one["attributes"]["data"]["entries"]))
                one = list(one.values())
            for inner in one if isinstance(one, list) else ():
                look(inner)

        look(self.charts[chart])
        return found


@pytest.fixture(scope="session")
def read_page():
    """Give what reads a page."""
    return Page


@pytest.fixture
def make_run(tmp_path, make_graph):
    """Write a run of a flow with the outputs of its stages, and return its folder.

    make_run()                a graph, its parts, training of 40 epochs, vectors, an evaluation
    make_run(evil="<b>")      that text in ids, labels, names of stages, metrics and errors
    make_run(2, state="failed")   the second run of the flow, with more in its record
    """

    def stage(name, job, report, out, **more):
        known = tmp_path / "out" / ".flow"
        known.mkdir(parents=True, exist_ok=True)
        (known / f"{name}.json").write_text(json.dumps({"key": name}))
        body = {"job": job, "state": "done", "began": 10.0, "seconds": 4.0, "report": report}
        return body | {"out": str(out), "key": name, "metrics": {"score": 0.5}} | more

    def make(number=1, *, evil="", **body):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)  # the same for every run
        graph = make_graph(nodes=200, edges=900, labels=3, features="dense")
        manifest = replace(graph.manifest, classes=tuple(f"{evil}c{i}" for i in range(3)))
        manifest.save(graph.path)
        part = {"nodes": 100, "ghosts": 20, "edges": 450, "cut": 50, "sends": 20}
        parts = {"parts": [part, part], "made_by": f"metis{evil}", "seconds": {"assign": 0.5}}
        gate = {"metric": f"{evil}score", "expected": ">= 0.4", "met": True, "note": evil}
        gate["value"] = 0.5 + number / 100
        score = {"split": "test", "classes": [f"{evil}c0", f"{evil}c1"], "accuracy": 0.75}
        score |= {"f1": [0.7, 0.8], "confusion": [[3, 1], [1, 3]]}
        ids = graph.user_ids().combine_chunks()
        words = [f"{evil}{i}" for i in range(30)]
        seconds = {"seconds": 3.0, "train_seconds": 2.0}
        made = [
            ("graph", "etl", {"nodes": 200}, graph.path),
            ("parts", "partition", parts, graph.path),
            ("model", "gnn train", trained(out / "model"), out / "model"),
            ("vectors", "word2vec train", seconds, vectors(out / "vectors", ids, graph)),
            ("words", "word2vec train", {}, vectors(out / "words", words)),
            ("score", "gnn evaluate", score, out / "model"),
        ]
        safe = evil.replace("/", "")
        stages = {f"{safe}{name}": stage(f"{safe}{name}", *rest) for name, *rest in made}
        stages[f"{safe}model"]["gates"] = [gate]
        whole = {"date": f"2026-01-0{number}", "began": f"2026-01-01T00:00:0{number}"}
        whole |= {"seconds": 12.5, "folder": str(out), "stages": stages}
        whole["versions"] = {f"{evil}numpy": evil}
        folder = make_record(tmp_path / f"runs/f-20260101-00000{number}", **whole | body)
        (folder / "logs" / "model.log").write_text(f"epoch 1\n{evil}\n")
        return folder

    def trained(folder):
        folder.mkdir(exist_ok=True)
        lines = [
            {
                "epoch": epoch,
                "seconds": 0.05,
                "kinds": {"compute": 0.03, "halo": 0.01, "gradient": 0.005, "other": 0.005},
                **{
                    split: {"loss": 1 / epoch + shift, "score": 1 - 1 / (epoch + shift)}
                    for split, shift in (("train", 0.0), ("valid", 0.1), ("test", 0.2))
                },
            }
            for epoch in range(1, 41)
        ]
        results = {"edges": 900, "seconds": 3.5, "epochs": 40}
        results |= {
            "metrics": {"test": lines[-1]["test"]},
            "overlap": {"exposed": [0.01, 0.02, 0.03], "whole": [0.04, 0.05, 0.06]},
        }
        body = {"format": "penstock-gnn", "version": 1, "task": "class", "state": "done"}
        body |= {"model": {"layers": [{"kind": "gcn"}, {"kind": "gcn"}]}, "report": results}
        (folder / "run.json").write_text(json.dumps(body))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return {**results, "task": "class"}

    def vectors(folder, ids, graph=None):
        from penstock.manifest import graph_digest
        from penstock.pipelines.vectors import write_vectors

        folder.mkdir(exist_ok=True)
        values = np.random.default_rng(0).standard_normal((len(ids), 6)).astype(np.float32)
        about = {}
        if graph is not None:  # its manifest has changed since it was opened
            about = {"graph": str(graph.path), "graph_sha256": graph_digest(graph.path)}
        write_vectors(folder, ids, values, made_by="penstock word2vec train", **about)
        same = {"words": 1000, "seconds": 0.5}
        lines = [{"epoch": epoch, "loss": 1 / epoch, **same} for epoch in (1, 2, 3)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return folder

    return make
