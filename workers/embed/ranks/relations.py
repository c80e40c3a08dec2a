"""The vectors of relations, which every rank trains on edges of its own, kept in step.

Nodes have one rank each at any time; a relation is on edges of all ranks. So each rank changes a
copy, from the same values on, and every few batches the copies become one again: as if the ranks
had seen their batches one after another, each with the gradients that it had.

ADAGRAD  Gradients of squares q together took a value by d, while its sum of squares s grew to
         s + q. Their sum, over steps that fell from lr / sqrt(s) to lr / sqrt(s + q), is about
         d (sqrt(s) + sqrt(s + q)) / 2 / lr. Had the sum of squares grown to s + Q, by all ranks'
         q, they had taken it by d (sqrt(s) + sqrt(s + q)) / (sqrt(s) + sqrt(s + Q)). These are
         added up. (Plain sums of d would take the first steps, of s = 0, too far: as many times as
         there are ranks, rather than its root.)
SGD      The changes are added up.
ADAM     The changes are added up, and the means of gradients and squares averaged over ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernels.embed_rules import EmbedRules, Optimizer, Table

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_FEWEST = 16  # batches between two exchanges
_ROWS_PER_EDGE = 16  # rows of relations that are exchanged for an edge that was trained, at most


def batches_between(rows: int, batch: int) -> int:
    """Return after how many batches relations are exchanged: seldom enough to cost little."""
    return max(_FEWEST, -(-_ROWS_PER_EDGE * rows // batch))


class SharedRelations:
    """This rank's copy of the relations, and what they were when all copies were the same.

    shared.begin(most)     of a state: as many batches as the rank with the most has
    shared.trained()       after each batch
    shared.finish()        at its end: all copies are the same again
    """

    def __init__(
        self, comm: AnyCommunicator, table: Table | None, rules: EmbedRules, every: int
    ) -> None:
        self.comm, self.table, self.optimizer = comm, table, rules.optimizer
        self.every, self._batches, self._left = every, 0, 0
        if table is not None:
            self.start()

    def start(self) -> None:
        """Take the present values, equal on all ranks, as the base of changes."""
        assert self.table is not None
        self._values, self._state = self.table.values.copy(), self.table.state.copy()

    def begin(self, most: int) -> None:
        """Begin a state: every rank exchanges as often, also when it has nothing left to train."""
        self._batches, self._left = 0, -(-most // self.every)

    def trained(self) -> None:
        """Take note of a batch."""
        self._batches += 1
        if self._batches % self.every == 0:
            self._exchange()

    def finish(self) -> None:
        """Exchange until the last rank is done."""
        while self._left:
            self._exchange()

    def _exchange(self) -> None:
        self._left -= 1
        if self.table is not None:
            self.combine()

    def combine(self) -> None:
        """Make all copies equal: add the changes of every rank."""
        assert self.table is not None
        values, state = self.table.values, self.table.state
        values -= self._values
        if self.optimizer == Optimizer.ADAGRAD:
            root = self._state**0.5
            values *= root + state**0.5
            state -= self._state
            self.comm.allreduce(state)
            state += self._state
            self.comm.allreduce(values)
            # Where no gradient ever was, nothing has changed: 0 / 1.
            values /= root + state**0.5 + (state == 0)
        else:
            self.comm.allreduce(values)
            if self.optimizer == Optimizer.ADAM:
                self.comm.allreduce(state)
                state /= self.comm.size
        values += self._values
        self.start()
