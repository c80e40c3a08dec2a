"""One batch: scores of pieces in tiles, their gradients, then one update per row.

A piece is some edges of one chunk, for both sides. BLAS sums its negatives' gradients over its
edges, so that a row's gradient has at most one term per piece as a negative.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.embed.loss import tile_loss
from penstock.kernels.cpu.embed.matrices import Matrices
from penstock.kernels.cpu.embed.piece import (
    add_rows,
    distance_tile,
    distance_tile_slopes,
    finish_edges,
    gather_rows,
    leave_out,
    make_queries,
)
from penstock.kernels.cpu.embed.rows import factors_of
from penstock.kernels.cpu.embed.update import Duplicates, update
from penstock.kernels.cpu.embed.workspace import Workspace, entered
from penstock.kernels.embed_rules import Batch, EmbedRules, Model, Side, Table

_MOST, _LEAST, _WANTED = 1024, 256, 16  # edges of a piece; pieces of a batch
_TILE = 1 << 18  # scores of a tile: they stay in a core's cache
_FEWEST = 64  # least rows of a tile, to amortise its sums


def step(
    nodes: Table,
    relations: Table | None,
    batch: Batch,
    rules: EmbedRules,
    lr: float,
    number: int = 1,
    work: Any = None,
) -> float:
    """Train one batch, in place; return its loss."""
    with entered(work) as threads:
        return _Step(threads, nodes, relations, batch, rules).run(lr, number)


def pieces_of(edges: int, chunk: int) -> int:
    """Return the number of ``piece_cuts``' pieces; each has gradients of its negatives."""
    size = _size(edges)
    whole, rest = divmod(edges, chunk)
    return whole * -(-chunk // size) - (-rest // size)


def _size(edges: int) -> int:
    return min(_MOST, max(_LEAST, -(-edges // _WANTED)))


def piece_cuts(edges: int, chunk: int) -> list[tuple[int, int, int]]:
    """Return chunk, first and last edge of each piece; only the batch decides."""
    size = _size(edges)
    cuts = []
    for begin in range(0, edges, chunk):
        end = min(begin + chunk, edges)
        pieces = -(-(end - begin) // size)
        at = [begin + (end - begin) * i // pieces for i in range(pieces + 1)]
        cuts += [(begin // chunk, low, high) for low, high in pairwise(at)]
    return cuts


class _Step:
    def __init__(
        self,
        work: Workspace,
        nodes: Table,
        relations: Table | None,
        batch: Batch,
        rules: EmbedRules,
    ) -> None:
        self.work, self.nodes, self.relations, self.rules = work, nodes, relations, rules
        edges, sides = len(batch.heads), len(rules.sides)
        self.edges = edges
        self.heads, self.tails = (np.asarray(ids, np.int64) for ids in (batch.heads, batch.tails))
        named = np.zeros(edges, np.int64) if batch.relations is None else batch.relations
        self.named = np.asarray(named, np.int64)
        self.negatives = np.ascontiguousarray(batch.negatives, np.int64)
        self.weights = batch.weights
        self.count = self.negatives.shape[2]
        self.cuts = piece_cuts(edges, rules.chunk)
        # Sides that share their negatives share the gradients of these.
        self.groups = self.negatives.shape[0]
        self.relation_groups = sides if rules.inverse else 1
        self.matrices = None
        if relations is not None and rules.has_matrices:
            named = [self._relation_rows(side) for side in rules.sides]
            self.matrices = Matrices(work, relations.values, named, rules)
            self.factors = self.matrices.factors
        else:
            self.factors = factors_of(None if relations is None else relations.values, rules)
        self.losses = work.shared("losses", (edges,), np.float64)
        self.slopes = work.shared(
            "slopes", (2 * edges + len(self.cuts) * self.groups * self.count, rules.dim)
        )
        width = rules.relation_width if self.matrices is None else 0
        self.relation_slopes = work.shared("relation slopes", (self.relation_groups * edges, width))

    def run(self, lr: float, number: int) -> float:
        work, rules = self.work, self.rules
        found: list[Duplicates] = []

        def do(piece: int) -> None:
            # One thread first finds duplicates, while the others begin with products.
            if piece == 0:
                found.extend(self._duplicates())
            else:
                self._piece(piece - 1)

        with np.errstate(all="ignore"):  # BLAS warns of NaN; the loss shows it
            work.each(do, len(self.cuts) + 1)
        loss = float(self.losses.sum())
        if self.relations is not None and self.matrices is not None:
            given = [self._given(side) for side in rules.sides]
            ids, self.relation_slopes, penalty = self.matrices.slopes(self.nodes.values, given)
            found.append(Duplicates(work, "relation", ids, len(self.relations.values)))
            loss += penalty
        update(work, self.nodes, found[0], self.slopes, rules, lr, number)
        if self.relations is not None:
            update(work, self.relations, found[1], self.relation_slopes, rules, lr, number)
        return loss

    def _duplicates(self) -> list[Duplicates]:
        ids = self.work.shared("ids", (len(self.slopes),), np.int64)
        ids[: self.edges], ids[self.edges : 2 * self.edges] = self.heads, self.tails
        blocks = ids[2 * self.edges :].reshape(len(self.cuts), self.groups, self.count)
        for piece, (chunk, _, _) in enumerate(self.cuts):
            blocks[piece] = self._negatives_of(chunk)
        found = [Duplicates(self.work, "node", ids, len(self.nodes.values))]
        if self.relations is not None and self.matrices is None:
            rows = [self._relation_rows(side) for side in self.rules.sides]
            ids = np.concatenate(rows[: self.relation_groups])
            found.append(Duplicates(self.work, "relation", ids, len(self.relations.values)))
        return found

    def _negatives_of(self, chunk: int) -> Array:
        shared: Array = self.negatives[:, chunk if self.negatives.shape[1] > 1 else 0]
        return shared

    def _given(self, side: Side) -> Array:
        return self.heads if side == Side.TAIL else self.tails

    def _relation_rows(self, side: Side) -> Array:
        moved = self.rules.inverse if side == Side.HEAD else 0
        return self.named + moved if moved else self.named

    def _piece(self, piece: int) -> None:
        chunk, low, high = self.cuts[piece]
        rules, edges = self.rules, self.edges
        begin = 2 * edges + piece * self.groups * self.count
        blocks = self.slopes[begin : begin + self.groups * self.count]
        blocks = blocks.reshape(self.groups, self.count, rules.dim)
        self.losses[low:high] = 0
        for place, side in enumerate(rules.sides):
            group = place if self.groups > 1 else 0
            if group == place:
                rows = self._negatives_of(chunk)[group]
                others = self.work.own("others", (self.count, rules.dim))
                gather_rows(self.nodes.values, rows, others)
                order = np.argsort(rows)
                ordered = rows[order]
            self._side(place, side, low, high, others, ordered, order, blocks[group])

    def _side(
        self,
        place: int,
        side: Side,
        low: int,
        high: int,
        others: Array,
        ordered: Array,
        order: Array,
        in_others: Array,
    ) -> None:
        rules, work, edges = self.rules, self.work, self.edges
        model, dim, count = int(rules.model), rules.dim, self.count
        size = high - low
        in_heads, in_tails = self.slopes[low:high], self.slopes[edges + low : edges + high]
        given, answers, in_given, in_answers = (
            (self.heads[low:high], self.tails[low:high], in_heads, in_tails)
            if side == Side.TAIL
            else (self.tails[low:high], self.heads[low:high], in_tails, in_heads)
        )
        sign = np.float32(-1 if side == Side.HEAD and not rules.inverse else 1)
        relations = self._relation_rows(side)[low:high]
        if self.matrices is not None:
            relations = self.matrices.rows[place][low:high]
        at = edges * place if self.relation_groups > 1 else 0
        in_relations = self.relation_slopes[at + low : at + high]
        asked, in_asked = work.own("asked", (size, dim)), work.own("in asked", (size, dim))
        if self.matrices is not None:
            in_asked = self.matrices.in_asked[place, low:high]
        positives, slopes = work.own("positives", (size,)), work.own("slopes", (size,))
        values, losses = self.nodes.values, self.losses[low:high]
        tables, rows = (values, self.factors), (given, relations, answers)
        make_queries(model, sign, tables, rows, asked, positives)
        tile = min(size, max(_FEWEST, _TILE // count))
        first_of_block = place == 0 or self.groups > 1
        if rules.is_distance:
            in_asked[:] = 0
            if first_of_block:
                in_others[:] = 0
        for first in range(0, size, tile):
            last = min(first + tile, size)
            scores = work.own("scores", (last - first, count))
            if rules.is_distance:
                distance_tile(model, asked, first, others, scores)
                kept = work.own("kept", scores.shape)
                kept[:] = scores
            else:
                np.matmul(asked[first:last], others.T, out=scores)
            leave_out(scores, answers, first, ordered, order)
            tile_loss(
                int(rules.loss),
                scores,
                positives,
                first,
                np.float32(rules.margin),
                np.float32(rules.temperature),
                losses,
                slopes,
                None if self.weights is None else self.weights[low:high],
            )
            if rules.is_distance:
                distance_tile_slopes(model, asked, first, others, kept, scores, in_asked, in_others)
                continue
            np.matmul(scores, others, out=in_asked[first:last])
            if first == 0 and first_of_block:
                np.matmul(scores.T, asked[first:last], out=in_others)
            else:
                part = work.own("part", in_others.shape)
                np.matmul(scores.T, asked[first:last], out=part)
                add_rows(in_others, part)
        phases = rules.model == Model.ROTATE
        relation_penalty = 0 if phases or self.matrices is not None else rules.relation_penalty
        finish_edges(
            model,
            sign,
            tables,
            rows,
            (asked, positives, slopes, in_asked),
            (in_given, in_relations, in_answers),
            (rules.power, np.float32(rules.node_penalty), np.float32(relation_penalty)),
            losses,
            place == 0,
            place == 0 or self.relation_groups > 1,
        )
