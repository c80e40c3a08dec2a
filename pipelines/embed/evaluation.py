"""``penstock embed evaluate``: the ranks of edges' answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.csr import id_dtype
from penstock.errors import InputError, PenstockError, UsageError, warn
from penstock.graph import Graph
from penstock.pipelines.embed.candidates import find_candidates
from penstock.pipelines.embed.options import EvaluateOptions
from penstock.pipelines.embed.planning import memory_to_rank
from penstock.pipelines.embed.report import EvaluateReport
from penstock.pipelines.embed.run import Run, checkpoint_of
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.rows import Column
from penstock.pipelines.tables.sources import find_files
from penstock.pipelines.tables.text import TextShape
from penstock.pipelines.vectors.vectors import find_ids
from penstock.sizes import plural
from penstock.workers.embed.evaluation.evaluate import EvaluateTask, evaluate, unknown
from penstock.workers.embed.source import BLOCK_BYTES
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.embed.warm import IDS

Names = Mapping[str, pa.Array]
"""Columns head, tail and, unless edges have none, relation."""

_EDGE = 3 * 8  # bytes of an edge that is read
_KNOWN = 40  # of a known answer, while all of them are sorted


def graph_of(folder: RunFolder, given: Path | None, run: Run) -> Graph:
    """Open the given graph or, without one, the run's."""
    return Graph.open(folder.graph_path(given, run.graph, "Give its path with --graph"))


def graph_of_training(folder: RunFolder, given: Path | None, run: Run) -> Graph:
    """Open the graph that a run was trained on: its nodes have the run's numbers."""
    graph = graph_of(folder, given, run)
    if graph.digest != run.graph_sha256:
        raise UsageError(
            f"{graph.path} is not the graph that {folder.path} was trained on",
            expected="the graph of the run",
            remedy="Give the path of that graph with --graph",
        )
    return graph


def plan_ranking(
    context: Context, at: Path, found: Checkpoint, what: str, more: int = 0, ranks: int = 1
) -> Workers:
    """Return the ranks that will read the vectors of a run; ``--plan`` ends here.

    what  the purpose; more: bytes that each rank needs besides a partition, or a block of it
    """
    workers = context.ranks(None, ranks)
    has = workers.capacity
    needed = 2 * min(found.geometry.bytes, BLOCK_BYTES) + 500_000_000 + more
    # With a GPU, edges and known answers are in host memory.
    memory = Need(needed) if has.on_gpu else has.need(needed, "Give workers more memory")
    step = "rank", f"the {found.name} checkpoint of {at}, on {plural(ranks, 'rank')}"
    context.plan(what, steps=(step,), memory=memory)
    return workers


def evaluate_run(context: Context, folder: RunFolder, options: EvaluateOptions) -> EvaluateReport:
    """Rank the answers of edges among all nodes."""
    at, run = folder.path, Run.load(folder.path)
    checkpoint = checkpoint_of(at, options.checkpoint, run)
    if options.by_relation and run.relations is None:
        raise UsageError(f"{at} was trained without relations", remedy="Leave --by-relation out")
    graph, split = graph_of(folder, options.graph, run), options.split or "test"
    same = graph.digest == run.graph_sha256
    _check_edges(graph, split, at, run, options)
    if not same and options.graph is None:
        warn(
            f"{graph.path} has changed since {at} was trained: its edges are ranked by the ids of "
            "their nodes"
        )
    own_graph = partial(graph_of_training, folder, options.graph if same else None, run)
    candidates = find_candidates(options.candidates, at, run, own_graph, options.seed)
    filters, unfiltered = [graph], None
    if options.filtered and not same:
        own = _graph_of_the_run(run)
        filters, unfiltered = ([graph, own], None) if own else ([graph], run.graph)
    triples, skipped, held = None, 0, graph.manifest.heldout
    every = int(graph.num_edges if split == "train" else held.get(split, 0))
    if options.triples is not None:
        triples, skipped = _read(options.triples, at, run, options.unknown)
        every = int(triples.shape[1])
    edges = min(options.sample or every, every)
    more = (every - edges) * _EDGE  # before the sample is drawn
    ranks = options.parts or 1
    share = -(-edges // ranks)
    more += memory_to_rank(share, run.training.dim, run.nodes, filtered=options.filtered)
    if options.filtered:  # an edge answers at most one query per side
        known = sum(g.num_edges + sum(g.manifest.heldout.values()) for g in filters)
        more += min(known, share * run.nodes) * _KNOWN
    workers = plan_ranking(context, at, checkpoint, "the ranks of edges", more, ranks)
    task = EvaluateTask(
        graph=graph.path,
        run=at,
        training=run.training,
        relations=run.relations,
        checkpoint=checkpoint.name,
        split=None if triples is not None else split,
        triples=triples,
        same=same,
        filtered=options.filtered,
        candidates=candidates,
        sample=options.sample,
        skip_unknown=options.unknown == "skip",
        seed=options.seed,
        at=options.at,
        by_relation=options.by_relation,
        own=filters[1].path if len(filters) > 1 else None,
    )
    found = workers.ranks(evaluate, (task,), title="evaluate")[0]
    found["skipped"] += skipped
    return EvaluateReport(
        run=str(at),
        graph=str(graph.path),
        split=split if options.triples is None else str(options.triples),
        filtered=options.filtered,
        filters=[str(one.path) for one in filters] if options.filtered else None,
        unfiltered=unfiltered,
        checkpoint=checkpoint.name,
        at=options.at,
        **found,
    )


def _check_edges(graph: Graph, split: str, at: Path, run: Run, options: EvaluateOptions) -> None:
    """Raise UsageError if a graph has no edges to rank."""
    held = graph.manifest.heldout
    if run.relations is not None and graph.manifest.relations is None:
        raise UsageError(
            f"{graph.path} has no relations, which {at} was trained on",
            expected="a graph whose edges have relations",
        )
    if options.triples is None and split != "train" and not held.get(split):
        found = ", ".join(f"{name} {count:,}" for name, count in held.items())
        raise UsageError(
            f"{graph.path} holds out no edges for {split}",
            expected=f"edges of the split {split}",
            got=found or "no edges held out",
            remedy="Hold some out with penstock etl --split-edges 0.9 0.05 0.05, or --valid "
            "and --test, or rank those of a file with --triples",
        )


def _graph_of_the_run(run: Run) -> Graph | None:
    """Return the graph that the run was trained on, if it still exists unchanged."""
    try:
        found = Graph.open(run.graph)
    except (PenstockError, OSError):
        return None
    return found if found.digest == run.graph_sha256 else None


def _read(path: Path, at: Path, run: Run, unknown_ones: str) -> tuple[Array, int]:
    """Return the edges of a file as numbers of the run, and the number of skipped edges."""
    names = ("head", "tail") if run.relations is None else ("head", "relation", "tail")
    (file,), columns = find_files([str(path)]), [[pa.array([], pa.string())] for _ in names]
    kinds: dict[Column, str] = dict.fromkeys(names, "string")
    for rows in read_rows(Piece(file, "triples"), kinds, TextShape(names, "\t")):
        rows.checks.report(rows.source, "error")
        for name, column in zip(names, columns, strict=True):
            column.append(rows.columns[name])
    triples = dict(zip(names, map(pa.concat_arrays, columns), strict=True))
    return edge_numbers(at, run, triples, str(path), unknown_ones)


def numbers_of_names(run: Run, ids: pa.Array, names: Names, relation: int = 0) -> Array:
    """Return heads, relations and tails as numbers of a run, (3, n); -1: it does not have them.

    relation  of edges without a column of relations
    """
    heads, tails = (find_ids(ids, names[end]) for end in ("head", "tail"))
    relations = np.full(len(heads), relation, np.int64)
    if run.relations is not None and "relation" in names:
        relations = find_ids(pa.array(run.relations, pa.string()), names["relation"])
    return np.stack([heads, relations, tails])


def edge_numbers(
    at: Path, run: Run, names: Names, where: str, unknown_ones: str
) -> tuple[Array, int]:
    """Return edges as numbers of a run, in the narrowest type, and how many were skipped."""
    found = numbers_of_names(run, read_column(at / IDS, "id").combine_chunks(), names)
    good = (found >= 0).all(axis=0)
    bad = int(np.count_nonzero(~good))
    if bad and unknown_ones == "error":
        raise unknown_names(names, found, where)
    if bad and not good.any():
        raise UsageError(
            f"{at} does not know any edge of {where}",
            expected="an edge of nodes and relations that it was trained on",
            got=f"{plural(bad, 'edge')}, which --unknown skip leaves out",
        )
    # They are sent to the rank with the task.
    dtype = id_dtype(max(run.nodes, len(run.relations or ())))
    return found.astype(dtype)[:, good], bad


def unknown_names(names: Names, numbers: Array, where: str, *, what: str = "edge") -> InputError:
    """Return the error of edges or questions with unknown names, whose number is -1."""
    lost = [
        pc.unique(names[column].filter(pa.array(of == -1))).to_pylist() if column in names else []
        for column, of in zip(("head", "relation", "tail"), numbers, strict=True)
    ]
    bad = int(np.count_nonzero((numbers == -1).any(axis=0)))
    return unknown(bad, [*dict.fromkeys(lost[0] + lost[2])], lost[1], where, what=what)
