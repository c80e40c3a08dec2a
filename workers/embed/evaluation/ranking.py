"""The rank of each edge's true answer among all nodes: MR, MRR and Hits@k.

Queries are ranked in blocks, and candidates partition by partition, so memory does not grow with
the number of pairs. The rank of an answer is 1 + the candidates with a higher score + half of those
with the same score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import id_dtype, offsets_of
from penstock.kernels import kernel
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import EmbedRules, Known, Side
from penstock.kernels.streams import Stream
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation.candidates import Groups
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import VectorSource
from penstock.workers.resources.device import to_device, to_host

BLOCK = 1 << 16  # queries that are ranked together, at most
VALUES = 1 << 24  # values in the vectors of such a block: 64 MiB

ANSWERS = 1 << 24  # known answers that a kernel call gets, at most
_SAMPLE = 0  # the first draw of EMBED_CANDIDATE; see also candidates.py


def scores_of(ranks: Array) -> dict[str, Any]:
    """Return the mean rank, the mean of 1 / rank, and the share of ranks up to each k."""
    hits = {f"hits{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    means = {"mr": float(ranks.mean()), "mrr": float((1 / ranks).mean())}
    return {**means, **hits, "ranks": len(ranks)}


def sample(edges: Edges, count: int | None, seed: int) -> Edges:
    """Return ``count`` of the edges, determined by the seed; all if there are fewer."""
    if count is None or count >= edges.count:
        return edges
    keys = random_keys(seed, Stream.EMBED_CANDIDATE, _SAMPLE, edges.count)
    chosen = np.argpartition(keys, count)[:count]
    return edges.take(np.sort(chosen))


@dataclass(frozen=True, eq=False)
class KnownAnswers:
    """The answers that are known to be true for each query, stored once for equal queries.

    If a thousand edges of one relation lead to a node, they ask a thousand equal queries with a
    thousand answers each: stored per query, these are a million.

    unique  the answers of the different queries, as positions
    row     the number of each query's answers in ``unique``
    """

    unique: Known
    row: Array

    def take(self, queries: Array | slice) -> KnownAnswers:
        """Return the known answers of some queries."""
        return KnownAnswers(self.unique, self.row[queries])

    def within(self, first: int, stop: int) -> KnownAnswers:
        """Return the answers at positions from ``first`` up to ``stop``."""
        indices = self.unique.indices
        return self._kept((indices >= first) & (indices < stop), indices)

    def among(self, chosen: Array) -> KnownAnswers:
        """Return the answers that are among the chosen positions, as numbers of these."""
        at = within(self.unique.indices, chosen)
        return self._kept(at < len(chosen), at)

    def pieces(self) -> Iterator[tuple[slice, Known]]:
        """Yield as many queries at a time as have up to ANSWERS answers, with these answers."""
        ends = offsets_of(np.diff(self.unique.indptr)[self.row])
        begin = 0
        while begin < len(self.row):
            stop = int(np.searchsorted(ends, ends[begin] + ANSWERS, side="right")) - 1
            queries = slice(begin, max(stop, begin + 1))
            yield queries, self.of(queries)
            begin = queries.stop

    def of(self, queries: slice) -> Known:
        """Return the answers of each of some queries."""
        row, (offsets, indices) = self.row[queries], (self.unique.indptr, self.unique.indices)
        found = kernel("halo", indices).gather_rows(offsets, row, indices)
        return Known(offsets_of(np.diff(offsets)[row]), found)

    def _kept(self, which: Array, indices: Array) -> KnownAnswers:
        if which.all():
            return KnownAnswers(Known(self.unique.indptr, indices), self.row)
        before = offsets_of(which)
        return KnownAnswers(Known(before[self.unique.indptr], indices[which]), self.row)


def rank(
    source: VectorSource,
    rules: EmbedRules,
    edges: Edges,
    *,
    known: dict[Side, KnownAnswers] | None,
    candidates: Groups,
    work: Any,
) -> dict[Side, Array]:
    """Return the rank of every edge's tail and head: (edges,) float64 each.

    known       true answers of each side's queries, which are left out of the candidates
    candidates  the nodes to rank answers among
    """
    ranks = {side: np.empty(edges.count, np.float64) for side in rules.sides}
    size = max(1, min(BLOCK, VALUES // rules.dim))
    for begin in range(0, edges.count, size):
        block = slice(begin, min(begin + size, edges.count))
        for side in rules.sides:
            mine = None if known is None else known[side].take(block)
            found = _rank_block(source, rules, edges.take(block), side, mine, candidates, work)
            ranks[side][block] = found
    return ranks


def _rank_block(
    source: VectorSource,
    rules: EmbedRules,
    edges: Edges,
    side: Side,
    known: KnownAnswers | None,
    candidates: Groups,
    work: Any,
) -> Array:
    asked, given, answers = ask(source, rules, edges, side)
    kernels = kernel("embed", asked)
    scores = kernels.answer_scores(asked, given, rules)

    class Group:
        """Some of the edges, with their candidates."""

        def __init__(self, of: Array | slice, chosen: Array | None) -> None:
            here = of if isinstance(of, slice) else like(asked, of)
            self.of, self.chosen, self.asked, self.scores = of, chosen, asked[here], scores[here]
            self.known = None if known is None else known.take(of)
            self.answers = answers[of]
            if chosen is not None:
                self.answers = within(self.answers, chosen)
                self.known = None if self.known is None else self.known.among(chosen)
            self.counts = like(asked, np.zeros((len(self.answers), 2), np.int64))

        def count(self, first: int, values: AnyArray) -> None:
            first, values = chosen_of(self.chosen, first, values)
            if not len(values):
                return
            here = None if self.known is None else self.known.within(first, first + len(values))
            theirs = like(asked, self.answers)
            every: Iterable[tuple[slice, Known | None]] = [(slice(None), None)]
            for some, of in every if here is None else here.pieces():
                kernels.count(
                    self.asked[some],
                    self.scores[some],
                    theirs[some],
                    values,
                    rules,
                    self.counts[some],
                    first,
                    known_like(asked, of),
                    work,
                )

    groups = [Group(*one) for one in candidates(side, edges.relations)]
    for first, values in source.parts():
        for group in groups:
            group.count(first, values)
    ranks = np.empty(edges.count)
    for group in groups:
        found = to_host(source.total(group.counts))
        ranks[group.of] = 1 + found[:, 0] + found[:, 1] / 2
    return ranks


def chosen_of(chosen: Array | None, first: int, values: AnyArray) -> tuple[int, AnyArray]:
    """Return the chosen rows of a part, and how many chosen rows lie before the part."""
    if chosen is None:
        return first, values
    low, high = np.searchsorted(chosen, [first, first + len(values)]).tolist()
    return low, values[like(values, chosen[low:high] - first)]


def ask(
    source: VectorSource, rules: EmbedRules, edges: Edges, side: Side
) -> tuple[AnyArray, AnyArray, Array]:
    """Return a side's queries, and the vectors and positions of their answers."""
    given, answer = (edges.heads, edges.tails)[:: 1 if side == Side.TAIL else -1]
    positions = source.layout.positions
    if positions is not None:
        given, answer = positions[given], positions[answer]
    needed, where = np.unique(np.concatenate([given, answer]), return_inverse=True)
    rows = source.gather(needed)
    asked = queries_of(source, rules, rows, where[: edges.count], edges.relations, side)
    return asked, rows[like(rows, where[edges.count :])], answer


def queries_of(
    source: VectorSource,
    rules: EmbedRules,
    rows: AnyArray,
    given: Array,
    relation: Array,
    side: Side,
) -> AnyArray:
    """Return queries of rows and relations, on the device of the rows."""
    table = None if source.relations is None else like(rows, source.relations)
    at, of = like(rows, given.astype(np.int64)), like(rows, relation)
    found: AnyArray = kernel("embed", rows).queries(rows, table, at, of, side, rules)
    return found


def known_answers(
    held: Iterable[Edges], edges: Edges, sides: tuple[Side, ...], layout: NodeLayout, relations: int
) -> dict[Side, KnownAnswers]:
    """Return all answers to the queries of ``edges`` that ``held`` has.

    Without relations nearly every node scores highest with itself. So if no edge of ``held`` is a
    loop, a node is not a candidate for its own queries, like a known answer.

    relations  how many the model has
    """
    asked = [_Asked(edges, side, layout, max(relations, 1)) for side in sides]
    loops = False
    for some in held:  # once: there may be more edges than fit into memory
        loops = loops or (relations == 0 and bool((some.heads == some.tails).any()))
        for one in asked:
            one.look_at(some)
    if relations == 0 and not loops:
        for one in asked:
            one.look_at(one.to_themselves())
    return {one.side: one.known() for one in asked}


class _Asked:
    """The queries of one side, and their answers found so far."""

    def __init__(self, edges: Edges, side: Side, layout: NodeLayout, relations: int) -> None:
        self.side, self.layout, self.relations = side, layout, relations
        self.unique, self.row = np.unique(_keys(edges, side, relations), return_inverse=True)
        self.number = [np.empty(0, id_dtype(len(self.unique)))]
        self.answers = [np.empty(0, id_dtype(layout.nodes))]

    def look_at(self, some: Edges) -> None:
        """Keep the edges that answer a query."""
        if not len(self.unique):
            return
        keys = _keys(some, self.side, self.relations)
        at = np.minimum(np.searchsorted(self.unique, keys), len(self.unique) - 1)
        hit = np.flatnonzero(self.unique[at] == keys)
        answer = (some.tails if self.side == Side.TAIL else some.heads)[hit]
        positions = self.layout.positions
        answer = answer if positions is None else positions[answer]
        self.number.append(at[hit].astype(self.number[0].dtype))
        self.answers.append(answer.astype(self.answers[0].dtype))

    def to_themselves(self) -> Edges:
        """Return a loop for each node of the queries that the layout has: others are no answers."""
        nodes = self.unique // self.relations
        nodes = nodes[nodes < self.layout.nodes]
        return Edges(nodes, np.zeros(len(nodes), np.int32), nodes)

    def known(self) -> KnownAnswers:
        """Return the answers of different queries, each once, and each query's number in them."""
        number, answer = np.concatenate(self.number), np.concatenate(self.answers)
        self.number, self.answers = self.number[:1], self.answers[:1]
        order = np.lexsort((answer, number))
        number, answer = number[order], answer[order]
        first = np.ones(len(number), bool)
        first[1:] = (number[1:] != number[:-1]) | (answer[1:] != answer[:-1])
        number, answer = number[first], answer[first]
        offsets = offsets_of(np.bincount(number, minlength=len(self.unique)))
        return KnownAnswers(Known(offsets, answer), self.row)


def _keys(edges: Edges, side: Side, relations: int) -> Array:
    given = edges.heads if side == Side.TAIL else edges.tails
    return given.astype(np.int64) * relations + edges.relations


def within(positions: Array, chosen: Array) -> Array:
    """Return the index of each position among the chosen ones; their number if it is not chosen."""
    at = np.searchsorted(chosen, positions)
    there = at < len(chosen)
    there[there] = chosen[at[there]] == positions[there]
    return np.where(there, at, len(chosen))


def like(array: AnyArray, values: Array) -> AnyArray:
    """Return ``values`` on the device of ``array``."""
    if isinstance(array, np.ndarray) or not isinstance(values, np.ndarray):
        return values
    return to_device(values)


def known_like(array: AnyArray, known: Known | None) -> Known | None:
    """Return ``known`` on the device of ``array``."""
    if known is None:
        return None
    return Known(like(array, known.indptr), like(array, known.indices))
