"""``penstock init NAME``: a folder with a flow to begin with, and comments that explain it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import OutputExists
from penstock.files import save_text
from penstock.options import ClientPath
from penstock.paths import client_path
from penstock.pipelines.display import CountsReport, Display

FLOW = """\
# A night as one flow. From this folder:
#     penstock run flow.yaml --plan     which stages would run, and what they need
#     penstock run flow.yaml            run what has changed; an interrupted run resumes
#     penstock report                   a page about the last run
# Each stage is a command of Penstock; its other keys are the command's options, which
# `penstock etl --help`, `penstock walk --help` and so on list.
name: NAME
folder: out                       # one output per stage: out/graph, out/vectors, ...
variables: {input: edges.parquet, dim: 64}      # penstock run flow.yaml --set dim=128
stages:
  graph:                          # a table of edges becomes a graph with your ids
    job: etl
    input: "{{input}}"            # Parquet, CSV or text; a file, folder, glob or URL
    # source: follower            # the columns, if they are not src and dst
    # target: followed
    # directed: true
    # nodes: nodes.parquet        # one row per node, with labels and features
    expect:                       # gates: a stage that misses one fails, and nothing is published
      nodes: ">= 1"
      # edges: within 20 % of previous
  vectors:                        # random walks, and word2vec on them
    job: word2vec train
    input: graph
    dim: "{{dim}}"
    # publish: /srv/vectors       # readers see the old or the new folder, never half of one
  neighbours:                     # the ten nearest nodes of each node
    job: similar
    input: vectors
  scores:
    job: centrality
    input: graph
    metrics: pagerank,component
  # classes:                      # a GNN, if the nodes have labels
  #   job: gnn train
  #   input: graph
  #   epochs: 100
  # predictions: {job: gnn predict, input: classes}
# cluster: {cluster: local, workers: 4}         # where stages run; without it each decides
# schedule: {cron: "30 4 * * *", timezone: Europe/Zurich, retries: 2}   # penstock schedule add
# on_failure: "mail -s 'night failed' me@example.com < /dev/null"       # a command or a webhook
"""


@dataclass
class InitReport(CountsReport):
    """What was written."""

    flow: str

    def text(self) -> str:
        """Return the next commands."""
        folder = Path(self.flow).parent
        return (
            f"wrote {self.flow}\n"
            f"  next: copy or link your edges to {folder / 'edges.parquet'}, or edit the flow\n"
            f"        penstock run {self.flow} --plan\n"
            f"        penstock run {self.flow}"
        )


def command(
    folder: Annotated[ClientPath, Parameter(help="the folder to make")],
    /,
    *,
    output: Display = Display(),
) -> None:
    """Write a flow with comments into a folder: edges in; vectors, neighbours and scores out."""
    path = client_path(folder) / "flow.yaml"
    if path.exists():
        raise OutputExists(f"{path} exists", remedy="Name another folder, or edit this flow")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, FLOW.replace("NAME", path.resolve().parent.name))
    output.show(InitReport(str(path)))
