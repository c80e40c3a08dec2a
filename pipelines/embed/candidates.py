"""``--candidates``: nodes that may be answers and negatives, by a type, a label or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.arrow import read_column
from penstock.bounds import check_length
from penstock.graph import Graph, load_npy
from penstock.pipelines.candidates import mask_of
from penstock.pipelines.embed.options import ALL, BY_RELATION
from penstock.pipelines.embed.run import FORMAT, Run
from penstock.workers.embed.evaluation.candidates import Candidates
from penstock.workers.embed.warm import IDS

FILE = "candidates.npy"  # file in a run that was trained with candidates: one bit per node


def find_candidates(
    given: str | None, at: Path, run: Run, graph: Callable[[], Graph]
) -> Candidates | None:
    """Return the candidates for questions to a run: by default those of its training.

    Those limit only answers of the side that the training corrupts. None: all nodes.
    """
    trained = (run.options or {}).get("candidates")
    if given is None and trained not in (None, BY_RELATION):
        bits = load_npy(at / FILE)
        check_length(bits, -(-run.nodes // 8), at / FILE, remedy=FORMAT.restore)
        return Candidates(run.nodes, bits.tobytes()).limiting(run.training.corrupt)
    if given is None and trained == BY_RELATION:
        given = BY_RELATION
    if given is None or given == ALL:
        return None
    if given == BY_RELATION:
        typed = run.relations is not None
        return Candidates(run.nodes, graph=graph().path, typed=typed)
    mask = mask_of(given, read_column(at / IDS, "id").combine_chunks(), graph)
    return Candidates.of(mask)
