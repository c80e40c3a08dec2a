"""``--candidates``: nodes that may be answers and negatives, by a type, a label or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.files import save_npy
from penstock.graph import Graph, load_npy
from penstock.pipelines.candidates import mask_of
from penstock.pipelines.embed.options import ALL, BY_RELATION
from penstock.pipelines.embed.run import Run
from penstock.workers.embed.evaluation.candidates import Candidates
from penstock.workers.embed.warm import IDS

FILE = "candidates.npy"  # file in a run that was trained with candidates: one bit per node


def keep_candidates(folder: Path, mask: Array) -> None:
    """Keep the candidates of a training in its run's folder."""
    save_npy(folder, FILE, np.packbits(mask))


def find_candidates(
    given: str | None, at: Path, run: Run, graph: Callable[[], Graph]
) -> Candidates | None:
    """Return the candidates for questions to a run: by default those of its training.

    If the training corrupts one side, only answers of that side are limited. None: all nodes.
    """
    if given is None:
        given = BY_RELATION if (run.options or {}).get("candidates") == BY_RELATION else None
    if given is None and (at / FILE).is_file():
        kept = Candidates(run.nodes, load_npy(at / FILE).tobytes())
        return kept.limiting(run.training.corrupt)
    if given is None or given == ALL:
        return None
    if given == BY_RELATION:
        typed = run.relations is not None
        return Candidates(run.nodes, graph=graph().path, typed=typed)
    mask = mask_of(given, read_column(at / IDS, "id").combine_chunks(), graph)
    return Candidates.of(mask, run.training.corrupt)
