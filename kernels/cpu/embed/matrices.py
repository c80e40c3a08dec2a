"""Relations that are matrices: RESCAL's own, and TUCKER's, which are sums of shared ones.

BLAS sums the gradients of a matrix over all edges of the batch that have it.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.embed.piece import penalise
from penstock.kernels.cpu.embed.workspace import Workspace
from penstock.kernels.embed_rules import EmbedRules, Model, Side

_ROWS = 1024  # of the core, in a product
_SLOTS = 16  # matrices in a product with the core


class Matrices:
    """The matrices of a batch, and their gradients.

    factors   rows of dim * dim values
    rows      for each side, those of edges
    in_asked  (sides, edges, dim): gradients of queries, which pieces write
    """

    def __init__(
        self, work: Workspace, values: Array, named: list[Array], rules: EmbedRules
    ) -> None:
        self.work, self.values, self.rules = work, values, rules
        sides, self.edges = len(named), len(named[0])
        self.in_asked = work.shared("in asked of all", (sides, self.edges, rules.dim))
        self.distinct, slots = np.unique(np.concatenate(named), return_inverse=True)
        self.order = np.argsort(slots, kind="stable")  # places: side * edges + edge
        self.start = offsets_of(np.bincount(slots, minlength=len(self.distinct)))
        self.factors, self.rows = values, named
        if rules.model == Model.TUCKER:
            self.core = values[len(values) - rules.shared_rows :]
            self.rows = list(slots.reshape(sides, self.edges))
            self.factors = self._composed()

    def _composed(self) -> Array:
        core, mine = self.core, self.values[self.distinct]
        found = self.work.shared("matrices", (len(mine), len(core)))

        def some(block: int) -> None:
            of = slice(block * _ROWS, (block + 1) * _ROWS)
            np.matmul(mine, core[of].T, out=found[:, of])

        self.work.each(some, -(-len(core) // _ROWS))
        return found

    def slopes(self, nodes: Array, given: list[Array]) -> tuple[Array, Array, float]:
        """Return the rows that change, their gradients, and the penalty of the relations.

        given  for each side, the rows of given nodes
        """
        rules, dim, count = self.rules, self.rules.dim, len(self.distinct)
        found = self.work.shared("in matrices", (count, dim * dim))

        def add(slot: int) -> None:
            places = self.order[self.start[slot] : self.start[slot + 1]]
            total, part = found[slot].reshape(dim, dim), self.work.own("part", (dim, dim))
            total[:] = 0
            for place, side in enumerate(rules.sides):
                of = places[places // self.edges == place] - place * self.edges
                left, right = nodes[given[place][of]], self.in_asked[place, of]
                if side == Side.HEAD and not rules.inverse:
                    left, right = right, left
                np.matmul(left.T, right, out=part)
                total += part

        with np.errstate(all="ignore"):
            self.work.each(add, count)
            rows, slopes = self.distinct, found
            if rules.model == Model.TUCKER:
                rows, slopes = self._through_core(found)
        penalties = np.zeros(count)

        def punish(slot: int) -> None:
            weight = np.float32((self.start[slot + 1] - self.start[slot]) * rules.relation_penalty)
            row = self.values[self.distinct[slot]]
            penalties[slot] = penalise(rules.power, weight, row, slopes[slot])

        if rules.relation_penalty:
            self.work.each(punish, count)
        return rows, slopes, float(penalties.sum())

    def _through_core(self, in_matrices: Array) -> tuple[Array, Array]:
        """Return the gradients of relations and of the core, and their rows."""
        core, mine = self.core, self.values[self.distinct]
        count, shared = len(mine), len(core)
        slopes = self.work.shared("in relations", (count + shared, core.shape[1]))
        of_core = -(-shared // _ROWS)

        def some(block: int) -> None:
            if block < of_core:
                of = slice(block * _ROWS, min((block + 1) * _ROWS, shared))
                np.matmul(in_matrices[:, of].T, mine, out=slopes[count:][of])
                return
            first = (block - of_core) * _SLOTS
            last = min(first + _SLOTS, count)
            np.matmul(in_matrices[first:last], core, out=slopes[first:last])

        self.work.each(some, of_core + -(-count // _SLOTS))
        every = len(self.values)
        return np.concatenate([self.distinct, np.arange(every - shared, every)]), slopes


def compose(relations: Array, rows: Array, core: Array) -> Array:
    """Return the matrices of some relations: (rows, dim * dim) float64."""
    found = np.empty((len(rows), len(core)))
    _compose(relations, rows, core, found)
    return found


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _compose(relations: Array, rows: Array, core: Array, out: Array) -> None:
    for i in range(len(rows)):
        for f in range(len(core)):
            total = 0.0
            for k in range(core.shape[1]):
                total += np.float64(relations[rows[i], k]) * np.float64(core[f, k])
            out[i, f] = total
