"""``penstock word2vec train|evaluate``."""

from __future__ import annotations

from cyclopts import App, Group

from penstock.pipelines.word2vec import word2vec
from penstock.pipelines.word2vec.evaluation import evaluate_vectors

app = App(
    name="word2vec",
    help="Vectors of nodes and words: skip-gram over walks of a graph, lists, or text.",
    help_format="plaintext",
    group_parameters=Group("Options", sort_key=5),
    result_action="return_value",
)
app.command(word2vec.command, name="train", sort_key=1)
app.command(evaluate_vectors.command, name="evaluate", sort_key=2)
