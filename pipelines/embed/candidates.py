"""``--candidates``: nodes that may be answers and negatives, by a type, a label or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.arrow import read_column
from penstock.bounds import check_length
from penstock.graph import Graph, load_npy
from penstock.kernels.embed_rules import Side
from penstock.pipelines.candidates import mask_of
from penstock.pipelines.embed.options import ALL, BY_RELATION
from penstock.pipelines.embed.run import FORMAT, Run
from penstock.workers.embed.evaluation.candidates import ALL_NODES, Candidates
from penstock.workers.embed.warm import IDS

FILE = "candidates.npy"  # file in a run that was trained with candidates: one bit per node


def find_candidates(
    given: str | int | None, at: Path, run: Run, graph: Callable[[], Graph], seed: int = 0
) -> Candidates:
    """Return the candidates for questions to a run: by default those of its training.

    Those limit only answers of the side that the training corrupts.
    """
    if isinstance(given, int):
        return Candidates(drawn=given, seed=seed)
    trained = (run.options or {}).get("candidates")
    if given is None and trained not in (None, BY_RELATION):
        bits = load_npy(at / FILE)
        check_length(bits, -(-run.nodes // 8), at / FILE, remedy=FORMAT.restore)
        corrupt = run.training.corrupt
        return Candidates(bits.tobytes(), None if corrupt == "both" else Side[corrupt.upper()])
    if given is None and trained == BY_RELATION:
        given = BY_RELATION
    if given is None or given == ALL:
        return ALL_NODES
    if given == BY_RELATION:
        return Candidates(graph=graph().path, typed=run.relations is not None)
    mask = mask_of(given, read_column(at / IDS, "id").combine_chunks(), graph)
    return Candidates(np.packbits(mask).tobytes())
