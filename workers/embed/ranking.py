"""Where the true answer of each edge ranks among all nodes: MR, MRR and Hits@k.

Queries are ranked in blocks, candidates partition after partition, so that nothing grows with the
number of pairs. The rank of an answer is 1 + candidates that score more + half of those that score
as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import id_dtype, offsets_of
from penstock.kernels import kernel
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import EmbedRules, Known, Side
from penstock.kernels.streams import Stream
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import VectorSource

BLOCK = 1 << 16  # queries that are ranked together
_SAMPLE, _CANDIDATES = 0, 1 << 62  # where the draws of EMBED_CANDIDATE begin


@dataclass(frozen=True)
class Scores:
    """How well answers rank: the mean rank, the mean of 1 / rank, and shares of ranks up to k."""

    mr: float
    mrr: float
    hits1: float
    hits3: float
    hits10: float
    ranks: int

    @staticmethod
    def of(ranks: Array) -> Scores:
        """Return the scores of ranks, of which there is at least one."""
        one, three, ten = (float((ranks <= k).mean()) for k in (1, 3, 10))
        mr, mrr = float(ranks.mean()), float((1 / ranks).mean())
        return Scores(mr, mrr, one, three, ten, len(ranks))

    def to_dict(self) -> dict[str, Any]:
        """Return them by name."""
        return asdict(self)


def sample(edges: Edges, count: int | None, seed: int) -> Edges:
    """Return ``count`` of the edges, the same for a seed; all, where there are fewer."""
    if count is None or count >= edges.count:
        return edges
    keys = random_keys(seed, Stream.EMBED_CANDIDATE, _SAMPLE, edges.count)
    chosen = np.argpartition(keys, count)[:count]
    return edges.take(np.sort(chosen))


def rank(
    source: VectorSource,
    rules: EmbedRules,
    edges: Edges,
    *,
    known: dict[Side, Known] | None = None,
    candidates: int | None = None,
    seed: int = 0,
    work: Any = None,
) -> dict[Side, Array]:
    """Return the rank of every edge's tail and head: (edges,) float64 each.

    known       true answers that are no candidates, of each side's queries, as places
    candidates  rank among so many nodes, drawn for all edges; None: among all
    """
    ranks = {side: np.empty(edges.count, np.float64) for side in rules.sides}
    chosen = None
    if candidates is not None and candidates < source.layout.nodes:
        keys = random_keys(seed, Stream.EMBED_CANDIDATE, _CANDIDATES, source.layout.nodes)
        chosen = np.sort(np.argpartition(keys, candidates)[:candidates])
    for begin in range(0, edges.count, BLOCK):
        block = slice(begin, min(begin + BLOCK, edges.count))
        for side in rules.sides:
            mine = None if known is None else _rows_of(known[side], block)
            found = _rank_block(source, rules, edges.take(block), side, mine, chosen, work)
            ranks[side][block] = found
    return ranks


def _rank_block(
    source: VectorSource,
    rules: EmbedRules,
    edges: Edges,
    side: Side,
    known: Known | None,
    chosen: Array | None,
    work: Any,
) -> Array:
    asked, given, answers = _ask(source, rules, edges, side)
    kernels = kernel("embed", asked)
    xp_like = asked
    scores = kernels.answer_scores(asked, given, rules)
    counts = _like(xp_like, np.zeros((edges.count, 2), np.int64))
    if chosen is None:
        for first, values in source.parts():
            kernels.count(
                asked, scores, _like(xp_like, answers), values, rules, counts, first,
                known_like(xp_like, known), work,
            )  # fmt: skip
        counts = source.total(counts)
    else:
        kernels.count(
            asked, scores, _like(xp_like, _within(answers, chosen)), source.gather(chosen), rules,
            counts, 0, known_like(xp_like, _known_within(known, chosen)), work,
        )  # fmt: skip
    found = to_host(counts)
    ranks: Array = 1 + found[:, 0] + found[:, 1] / 2
    return ranks


def _ask(
    source: VectorSource, rules: EmbedRules, edges: Edges, side: Side
) -> tuple[Any, Any, Array]:
    """Return the queries of a side, the vectors of their answers, and the answers' places."""
    given, answer = (edges.heads, edges.tails)[:: 1 if side == Side.TAIL else -1]
    places = source.layout.places
    if places is not None:
        given, answer = places[given], places[answer]
    needed, where = np.unique(np.concatenate([given, answer]), return_inverse=True)
    rows = source.gather(needed)
    asked = queries_of(source, rules, rows, where[: edges.count], edges.relations, side)
    return asked, rows[_like(rows, where[edges.count :])], answer


def queries_of(
    source: VectorSource, rules: EmbedRules, rows: Any, given: Array, relation: Array, side: Side
) -> Any:
    """Return queries of rows and relations, wherever these are."""
    table = None if source.relations is None else _like(rows, source.relations)
    at, of = _like(rows, given.astype(np.int64)), _like(rows, relation)
    return kernel("embed", rows).queries(rows, table, at, of, side, rules)


def known_answers(
    held: Iterable[Edges], edges: Edges, sides: tuple[Side, ...], layout: NodeLayout, relations: int
) -> dict[Side, Known]:
    """Return all answers to the queries of ``edges`` that ``held`` has, as places.

    relations  how many the model has
    """
    asked = [_Asked(edges, side, layout, max(relations, 1)) for side in sides]
    for some in held:  # once: there may be more edges than fit into memory
        for one in asked:
            one.look_at(some)
    return {one.side: one.known() for one in asked}


class _Asked:
    """The queries of one side, and what has been found of their answers."""

    def __init__(self, edges: Edges, side: Side, layout: NodeLayout, relations: int) -> None:
        self.side, self.layout, self.relations = side, layout, relations
        self.unique, self.row = np.unique(_keys(edges, side, relations), return_inverse=True)
        self.number = [np.empty(0, np.int64)]
        self.answers = [np.empty(0, id_dtype(layout.nodes))]

    def look_at(self, some: Edges) -> None:
        """Keep those edges that answer a query."""
        if not len(self.unique):
            return
        keys = _keys(some, self.side, self.relations)
        at = np.minimum(np.searchsorted(self.unique, keys), len(self.unique) - 1)
        hit = np.flatnonzero(self.unique[at] == keys)
        answer = (some.tails if self.side == Side.TAIL else some.heads)[hit]
        self.number.append(at[hit])
        places = self.layout.places
        self.answers.append(answer if places is None else places[answer])

    def known(self) -> Known:
        """Return the answers of every query, the same ones for queries that are equal."""
        number, answer = np.concatenate(self.number), np.concatenate(self.answers)
        order = np.lexsort((answer, number))
        number, answer = number[order], answer[order]
        offsets = offsets_of(np.bincount(number, minlength=len(self.unique)))
        sizes = np.diff(offsets)[self.row]
        indptr = offsets_of(sizes)
        begin = np.repeat(offsets[self.row], sizes)
        at = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes) + begin
        return Known(indptr, answer[at].astype(id_dtype(self.layout.nodes)))


def _keys(edges: Edges, side: Side, relations: int) -> Array:
    given = edges.heads if side == Side.TAIL else edges.tails
    return given.astype(np.int64) * relations + edges.relations


def _rows_of(known: Known, block: slice) -> Known:
    indptr = known.indptr[block.start : block.stop + 1]
    return Known(indptr - indptr[0], known.indices[indptr[0] : indptr[-1]])


def _within(places: Array, chosen: Array) -> Array:
    """Return where places are among the chosen ones; behind all of them where they are not."""
    at = np.searchsorted(chosen, places)
    there = at < len(chosen)
    there[there] = chosen[at[there]] == places[there]
    return np.where(there, at, len(chosen))


def _known_within(known: Known | None, chosen: Array) -> Known | None:
    if known is None:
        return None
    at = _within(known.indices, chosen)
    kept = at < len(chosen)
    row = np.repeat(np.arange(len(known.indptr) - 1), np.diff(known.indptr))[kept]
    return Known(offsets_of(np.bincount(row, minlength=len(known.indptr) - 1)), at[kept])


def _like(array: Any, values: Array) -> Any:
    """Return ``values`` where ``array`` is."""
    if isinstance(array, np.ndarray) or not isinstance(values, np.ndarray):
        return values
    import cupy

    return cupy.asarray(values)


def known_like(array: Any, known: Known | None) -> Known | None:
    """Return ``known`` where ``array`` is."""
    if known is None:
        return None
    return Known(_like(array, known.indptr), _like(array, known.indices))


def to_host(array: Any) -> Array:
    """Return an array in host memory."""
    found: Array = array if isinstance(array, np.ndarray) else array.get()
    return found
