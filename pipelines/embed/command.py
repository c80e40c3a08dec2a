"""``penstock embed train|evaluate|predict|answer|export``."""

from __future__ import annotations

from cyclopts import App

from penstock.pipelines.embed import answer, evaluate, export, predict, train
from penstock.pipelines.help_page import OPTIONS

app = App(name="embed", group_parameters=OPTIONS)
app.command(train.command, name="train", sort_key=1)
app.command(evaluate.command, name="evaluate", sort_key=2)
app.command(predict.command, name="predict", sort_key=3)
app.command(answer.command, name="answer", sort_key=4)
app.command(export.command, name="export", sort_key=5)
