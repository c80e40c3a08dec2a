"""What training of embeddings wrote, to be compared: importable by tests, see pyproject.toml."""

import numpy as np

from penstock.workers.embed.source import open_checkpoint


def vectors(folder, name="last"):
    """Return values and state of every node by its number, and what else a checkpoint has."""
    source, found = open_checkpoint(folder / "checkpoints", name)
    try:
        parts = []
        for partition, size in enumerate(source.layout.sizes):
            parts.append([array[:size].copy() for array in source.slot(partition)])
        order = np.concatenate([source.layout.nodes_of(p) for p in range(source.layout.partitions)])
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        return [array[np.argsort(order)] for array in joined], found.tensors, found.about
    finally:
        source.close()


def values(run):
    """Return the vectors of the last checkpoint, by node, and those of relations."""
    states, tensors, _ = vectors(run)
    return states[0], tensors["relations"]


def same(one, other):
    """Assert that the last checkpoints of two runs are the same."""
    (ours, tensors, about), (theirs, others, said) = vectors(one), vectors(other)
    for mine, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, their)
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, others[name])
    assert about == said
