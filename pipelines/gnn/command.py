"""``penstock gnn train|predict|evaluate``."""

from __future__ import annotations

from cyclopts import App

from penstock.pipelines.gnn import evaluate, predict, train
from penstock.pipelines.help_page import OPTIONS

app = App(name="gnn", group_parameters=OPTIONS)
app.command(train.command, name="train", sort_key=1)
app.command(predict.command, name="predict", sort_key=2)
app.command(evaluate.command, name="evaluate", sort_key=3)
