"""Copies of relations become one as if ranks had trained one after another."""

import numpy as np
import pytest

from penstock.kernels.embed_rules import EmbedRules, Model, Optimizer, Table
from penstock.workers.embed.ranks.relations import SharedRelations


def table(seed, optimizer, first):
    rng = np.random.default_rng(seed)
    rules = EmbedRules(Model.DISTMULT, 4, optimizer=optimizer)
    values = rng.standard_normal((3, 4)).astype(np.float32)
    state = np.full((3, rules.state_width(4)), first, np.float32)
    return rules, Table(values, state)


def step(of, gradient, optimizer, lr=0.1):
    if optimizer == Optimizer.ADAGRAD:
        of.state[:] += gradient**2
        of.values[:] -= lr * gradient / (np.sqrt(of.state) + 1e-10)
    else:
        of.values[:] -= lr * gradient


@pytest.mark.parametrize("optimizer", [Optimizer.ADAGRAD, Optimizer.SGD])
@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("first", [0, 10])
def test_the_sum_of_changes_is_that_of_one_after_another(on_threads, optimizer, ranks, first):
    steps = 8
    rng = np.random.default_rng(0)
    # Of the size that is usual; what is 0 is never touched.
    gradients = rng.normal(1, 0.2, (steps, ranks, 3, 4)).astype(np.float32)
    gradients[..., 1, :] = 0

    def train(comm):
        rules, mine = table(1, optimizer, first)
        shared = SharedRelations(comm, mine, rules, every=4)
        shared.begin(steps)
        for gradient in gradients[:, comm.rank]:
            step(mine, gradient, optimizer)
            shared.trained()
        shared.finish()
        return mine

    found = on_threads(ranks, train)
    _, alone = table(1, optimizer, first)
    begun = alone.values.copy()
    for gradient in gradients.reshape(-1, 3, 4):
        step(alone, gradient, optimizer)
    for one in found:
        np.testing.assert_array_equal(one.values, found[0].values)
        np.testing.assert_array_equal(one.values[1], begun[1])
        np.testing.assert_allclose(one.state, alone.state, rtol=1e-5)
        ours, theirs = one.values - begun, alone.values - begun
        # Where nothing was summed yet the first step of all depends on how many take it at once.
        np.testing.assert_allclose(ours, theirs, rtol=0.02 if first else 0.15, atol=1e-6)


def test_means_of_adam_are_averaged_and_its_changes_added(on_threads):
    def train(comm):
        rules, mine = table(1, Optimizer.ADAM, 0)
        shared = SharedRelations(comm, mine, rules, every=4)
        shared.begin(1)
        mine.values[:] += comm.rank + 1
        mine.state[:] += 2 * comm.rank
        shared.trained()
        shared.finish()
        return mine

    _, begun = table(1, Optimizer.ADAM, 0)
    for one in on_threads(3, train):
        np.testing.assert_allclose(one.values, begun.values + 6, rtol=1e-6)
        np.testing.assert_array_equal(one.state, 2)
