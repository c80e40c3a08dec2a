"""The vectors of relations, synchronised between ranks that each train them on their own edges.

A node has one rank at any time, but all ranks have edges of a relation. So each rank changes its
own copy, starting from equal values, and every few batches the copies are combined: as if the ranks
had trained their batches one after another, each with its own gradients.

ADAGRAD  On one rank, gradients whose squares add up to q changed a value by d, while its sum of
         squares grew from s to s + q and the step size fell from lr / sqrt(s) to lr / sqrt(s + q).
         So the gradients add up to about d (sqrt(s) + sqrt(s + q)) / 2 / lr. If the sum of squares
         had grown to s + Q, where Q is the sum of all ranks' q, they would have changed the value
         by d (sqrt(s) + sqrt(s + q)) / (sqrt(s) + sqrt(s + Q)). These changes are added up over
         ranks. (The plain sum of d would make the first steps, with s = 0, too large by a factor of
         the number of ranks instead of its square root.)
SGD      The changes are added up.
ADAM     The changes are added up, and the means of gradients and squares are averaged over ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernels.embed_rules import EmbedRules, Optimizer, Table

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_FEWEST = 16  # batches between two exchanges
_ROWS_PER_EDGE = 16  # relation rows exchanged per trained edge, at most


def batches_between(rows: int, batch: int) -> int:
    """Return the number of batches between two exchanges: large enough that they cost little."""
    return max(_FEWEST, -(-_ROWS_PER_EDGE * rows // batch))


class SharedRelations:
    """This rank's copy of the relations, and their values when all copies were last equal.

    shared.begin(most)     begins a state; most: the batches of the rank that has the most
    shared.trained()       after each batch
    shared.finish()        ends the state: all copies are equal again
    """

    def __init__(
        self, comm: AnyCommunicator, table: Table | None, rules: EmbedRules, every: int
    ) -> None:
        self.comm, self.optimizer = comm, rules.optimizer
        self.table = table if comm.size > 1 else None  # a single rank has one copy
        self.every, self._batches, self._left = every, 0, 0
        if self.table is not None:
            self.start()

    def start(self) -> None:
        """Use the current values, equal on all ranks, as the base of changes."""
        assert self.table is not None
        self._values, self._state = self.table.values.copy(), self.table.state.copy()

    def begin(self, most: int) -> None:
        """Begin a state: all ranks exchange equally often, even if they have no batches left."""
        self._batches, self._left = 0, -(-most // self.every)

    def trained(self) -> None:
        """Count a batch, and exchange if it is time."""
        self._batches += 1
        if self._batches % self.every == 0:
            self._exchange()

    def finish(self) -> None:
        """Exchange as often as the rank with the most batches does."""
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
            # Without any gradient nothing has changed: 0 / 1.
            values /= root + state**0.5 + (state == 0)
        else:
            self.comm.allreduce(values)
            if self.optimizer == Optimizer.ADAM:
                self.comm.allreduce(state)
                state /= self.comm.size
        values += self._values
        self.start()
