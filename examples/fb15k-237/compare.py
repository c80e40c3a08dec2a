"""Train a graph by recipes of this folder, and rank its test edges by each.

penstock etl train.txt fb15k-237 --valid valid.txt --test test.txt
python compare.py fb15k-237 complex.yaml rotate.yaml
"""

import sys
from pathlib import Path

from penstock import embed

graph, *recipes = map(Path, sys.argv[1:])
for recipe in recipes:
    run = graph.with_name(f"{graph.name}-{recipe.stem}")
    embed.train(graph, run, recipe=recipe)
    scores = embed.evaluate(run, filtered=True).scores
    print(f"{recipe.stem}: MRR {scores['mrr']:.3f}, Hits@10 {scores['hits10']:.3f}")
