"""A training of embeddings: the same however it is cut into sittings, threads and swaps."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import CSR, Graph, generate
from penstock.errors import UsageError
from penstock.kernels.embed_rules import Side
from penstock.workers.embed import train as module
from penstock.workers.embed.negatives import Negatives
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.task import Trained, TrainTask
from penstock.workers.embed.train import node_layout, train
from penstock.workers.embed.versions import Checkpoints
from penstock.workers.embed.warm import WarmStart

SMALL: dict[str, Any] = {
    "dim": 8, "batch": 64, "negatives": 16, "epochs": 3, "validate_sample": 100,
    "validate_every": 1, "lr": 0.3, "schedule": "constant",
}  # fmt: skip


class Comm:
    """The communicator of the only rank, which may end it."""

    rank, size = 0, 1

    def __init__(self, stop: int | None = None) -> None:
        self.logged: list[dict[str, Any]] = []
        self.stop, self.checks = stop, 0

    def log(self, **metrics: Any) -> None:
        self.logged.append(metrics)

    def check(self) -> None:
        self.checks += 1
        if self.stop is not None and self.checks >= self.stop:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("kg") / "g"
    generate("kg", path, entities=300, triples=3000, relations=5, quiet=True)
    return Graph.open(path)


def run(graph: Graph, folder: Path, comm: Comm | None = None, **options: Any) -> Trained:
    folder.mkdir(exist_ok=True)
    init = options.pop("init", None)
    names = options.pop("init_relations", ())
    task = TrainTask(graph.path, folder, Training(**{**SMALL, **options}), init, names)
    return train(comm or Comm(), task)  # type: ignore[arg-type]


def vectors(folder: Path, name: str = "last") -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return values and state of every node by its number, and what else a checkpoint has."""
    source, found = open_checkpoint(folder / "checkpoints", name)
    try:
        parts = []
        for partition, size in enumerate(source.layout.sizes):
            arrays = [array.copy() for array in source.states(partition)]
            parts.append([array[:size] for array in arrays])
        order = np.concatenate([source.layout.nodes_of(p) for p in range(source.layout.partitions)])
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        return [array[np.argsort(order)] for array in joined], found.tensors, found.about
    finally:
        source.close()


def same(one: Path, other: Path) -> None:
    (ours, tensors, about), (theirs, others, said) = vectors(one), vectors(other)
    for mine, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, their)
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, others[name])
    assert about == said


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


OUT_OF_CORE = {"partitions": 5, "batch": 16}


@pytest.mark.parametrize("more", [{}, OUT_OF_CORE], ids=["in memory", "out of core"])
def test_a_training_learns_and_says_so(graph: Graph, tmp_path: Path, more: dict[str, Any]) -> None:
    comm = Comm()
    found = run(graph, tmp_path / "r", comm, epochs=8, **more)
    assert found.epochs == 8
    assert found.stopped == "epochs"
    losses = [line["loss"] for line in lines(tmp_path / "r")]
    assert len(losses) == 8
    assert losses[-1] < 0.6 * losses[0]
    assert found.validation is not None
    assert found.validation["mrr"] > 0.1  # of a random order: 0.02
    assert found.batches >= 8 * graph.num_edges // (more.get("batch", 64))
    assert max(one.get("edges", 0) for one in comm.logged) == 8 * graph.num_edges
    assert (found.bytes_read > 0) == bool(more)  # in memory only checkpoints touch the disk


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("more", [{}, OUT_OF_CORE], ids=["in memory", "out of core"])
def test_a_resumed_training_is_the_same(
    graph: Graph, tmp_path: Path, more: dict[str, Any], optimizer: str
) -> None:
    more = {**more, "optimizer": optimizer, "lr": 0.05}
    run(graph, tmp_path / "whole", epochs=3, **more)
    run(graph, tmp_path / "parts", epochs=1, **more)
    found = run(graph, tmp_path / "parts", epochs=3, **more)
    assert found.first_epoch == 1
    same(tmp_path / "whole", tmp_path / "parts")
    assert [line["loss"] for line in lines(tmp_path / "whole")] == [
        line["loss"] for line in lines(tmp_path / "parts")
    ]


def test_a_training_that_is_interrupted_goes_on_within_an_epoch(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK", 0)  # at every batch
    more = {**OUT_OF_CORE, "checkpoint_minutes": 1e-9}
    run(graph, tmp_path / "whole", **more)
    places = set()
    for stop in (30, 150, 170):
        with pytest.raises(KeyboardInterrupt):
            run(graph, tmp_path / "cut", Comm(stop), **more)
        about = Checkpoints(tmp_path / "cut/checkpoints").load().about
        places.add((about["epoch"], about["state"]))
    assert any(state for _, state in places)
    run(graph, tmp_path / "cut", **more)
    same(tmp_path / "whole", tmp_path / "cut")
    epochs = [line["epoch"] for line in lines(tmp_path / "cut") if "loss" in line]
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [{"prefetch": False}, {"checkpoint_minutes": 1e-9}, {"validate_every": 2}],
    ids=["no prefetch", "many checkpoints", "fewer evaluations"],
)
def test_what_does_not_matter(graph: Graph, tmp_path: Path, other: dict[str, Any]) -> None:
    run(graph, tmp_path / "one", **OUT_OF_CORE)
    run(graph, tmp_path / "other", **OUT_OF_CORE, **other)
    (ours, _, _), (theirs, _, _) = vectors(tmp_path / "one"), vectors(tmp_path / "other")
    np.testing.assert_array_equal(ours[0], theirs[0])


def test_another_seed_is_another_training(graph: Graph, tmp_path: Path) -> None:
    run(graph, tmp_path / "one", epochs=1)
    run(graph, tmp_path / "two", epochs=1, seed=1)
    assert not np.array_equal(vectors(tmp_path / "one")[0][0], vectors(tmp_path / "two")[0][0])


@pytest.mark.parametrize(
    "more",
    [
        {"model": "dot"},
        {"model": "distmult", "loss": "logistic"},
        {"model": "transe", "loss": "margin"},
        {"model": "transe", "norm": 2, "corrupt": "tail"},
        {"model": "rotate", "loss": "self-adversarial", "lr": 0.05},
        {"negatives": "all"},
        {"by_degree": 0.5},
        {"by_degree": 1.0, **OUT_OF_CORE},
        {"order": "cover", **OUT_OF_CORE, "partitions": 16, "batch": 4},
        {"chunk": 16, "l2": 1e-3},
        {"schedule": "linear"},
    ],
    ids=lambda more: "-".join(f"{value}" for value in more.values()),
)
def test_every_way_of_training_lowers_the_loss(
    graph: Graph, tmp_path: Path, more: dict[str, Any]
) -> None:
    run(graph, tmp_path / "r", epochs=4, **more)
    losses = [line["loss"] for line in lines(tmp_path / "r")]
    assert losses[-1] < losses[0]


def test_negatives_are_fairly_shared_among_partitions(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An own partition has its share of the graph; the third one stands for all others."""
    pools = []
    make = Negatives.pool

    def keep(self: Any, phase: Any, pair: Any, rows: Any) -> Any:
        pool = make(self, phase, pair, rows)
        pools.append((len(phase.partitions), len(pair), pool, dict(rows), pair))
        return pool

    monkeypatch.setattr(Negatives, "pool", keep)
    run(graph, tmp_path / "r", epochs=1, **OUT_OF_CORE)
    seen = set()
    for there, own, pool, rows, pair in pools:
        starts, sizes = pool.first, np.diff(pool.start)
        mine = np.isin(starts, [rows[p] for p in pair])
        share = sizes[mine].sum() / sizes.sum()
        expected = 1.0 if there == own else own / 5
        assert share == pytest.approx(expected, abs=0.01)
        seen.add((there, own))
    assert {(3, 1), (3, 2), (2, 1), (2, 2)} <= seen


def test_negatives_by_degree_are_shared_alike(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are drawn at random: by degree each has about the share that it has uniformly."""
    seen = set()
    make = Negatives.pool

    def keep(self: Any, phase: Any, pair: Any, rows: Any) -> Any:
        pool = make(self, phase, pair, rows)
        count = int(pool.start[-1])
        chance = np.asarray(pool.chance, np.float64)
        table = chance / count
        np.add.at(table, np.asarray(pool.other), (1 - chance) / count)
        share = pool.by_degree / 2**32
        drawn = share * table + (1 - share) / count
        mine = np.isin(pool.first, [rows[p] for p in pair])
        there, own = len(phase.partitions), len(pair)
        expected = 1.0 if there == own else own / 5
        assert drawn[np.repeat(mine, np.diff(pool.start))].sum() == pytest.approx(
            expected, abs=0.05
        )
        assert np.ptp(drawn) > 0  # by degree it is not uniform
        seen.add((there, own))
        return pool

    monkeypatch.setattr(Negatives, "pool", keep)
    run(graph, tmp_path / "r", epochs=1, by_degree=0.5, **OUT_OF_CORE)
    assert {(3, 1), (3, 2), (2, 1), (2, 2)} <= seen


def test_patience_ends_a_training(graph: Graph, tmp_path: Path) -> None:
    found = run(graph, tmp_path / "r", epochs=60, patience=2, lr=1.0)
    assert found.stopped == "patience"
    assert found.epochs == found.best_epoch + 2
    best = vectors(tmp_path / "r", "best")[2]
    assert best["epoch"] == found.best_epoch


def test_a_loss_that_is_no_number_ends_a_training(graph: Graph, tmp_path: Path) -> None:
    found = run(graph, tmp_path / "r", optimizer="sgd", lr=1e30)
    assert found.stopped == "nan"
    assert not (tmp_path / "r/checkpoints/last.json").exists()


def test_a_batch_larger_than_the_largest_bucket_is_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="larger than the largest bucket"):
        run(graph, tmp_path / "r", partitions=5, batch=2000)


def test_a_warm_start_keeps_what_is_known(graph: Graph, tmp_path: Path) -> None:
    """Known nodes and relations begin with yesterday's vectors and state, by id."""
    from penstock.pipelines.embed.run import keep_ids

    first = tmp_path / "first"
    run(graph, first, **OUT_OF_CORE)
    keep_ids(first, graph)
    # Tomorrow's graph: other numbers, a few nodes and a relation more.
    rng = np.random.default_rng(0)
    ids = [f"e{i}" for i in rng.permutation(graph.num_nodes + 20)]
    with Graph.create(tmp_path / "g2") as writer:
        ends = rng.integers(0, len(ids), (2, 2000))
        relations = rng.integers(0, 6, 2000).astype(np.int32)
        writer.edges(CSR.from_edges(*ends, len(ids), relations=relations))
        writer.nodes(ids)
        names = tuple(f"r{i}" for i in (5, 4, 3, 2, 1, 0))
        writer.manifest = replace(writer.manifest, relations=names)
    graph2 = Graph.open(tmp_path / "g2")
    names = graph.manifest.relations
    assert names is not None

    second = tmp_path / "second"
    second.mkdir()
    task = TrainTask(
        graph2.path, second, Training(**{**SMALL, "partitions": 4, "batch": 16}), first, names
    )
    begun = module.Run(Comm(), task)  # type: ignore[arg-type]
    try:
        old, tensors, _ = vectors(first)
        number = {name: i for i, name in enumerate(graph.user_ids().to_pylist())}
        for partition in range(4):
            slot = [np.zeros((begun.table.geometry.rows, 8), np.float32) for _ in range(2)]
            begun._initial(partition, slot)
            for row, node in enumerate(begun.layout.nodes_of(partition)):
                at = number.get(ids[node])
                if at is None:
                    assert not slot[1][row].any()
                    assert 0 < np.abs(slot[0][row]).max() < 0.01
                else:
                    np.testing.assert_array_equal(slot[0][row], old[0][at])
                    np.testing.assert_array_equal(slot[1][row], old[1][at])
        assert begun.warm is not None
        assert begun.warm.known == {"nodes": 300, "relations": 5}
        assert begun.relations is not None
        for i, name in enumerate(("r5", "r4", "r3", "r2", "r1", "r0")):
            if name in names:
                at = names.index(name)
                for ours, theirs in ((i, at), (6 + i, 5 + at)):
                    wanted = tensors["relations"][theirs]
                    np.testing.assert_array_equal(begun.relations.values[ours], wanted)
    finally:
        begun.close()


def test_a_warm_start_fills_several_partitions_at_once(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that replaces the whole buffer fills its slots in as many threads."""
    from concurrent.futures import ThreadPoolExecutor

    from penstock.pipelines.embed.run import keep_ids
    from penstock.workers.embed.source import TableSource

    first = tmp_path / "first"
    run(graph, first, epochs=1, **OUT_OF_CORE)
    keep_ids(first, graph)
    states = TableSource.states

    def slow(self: TableSource, partition: int) -> Any:
        found = states(self, partition)
        time.sleep(0.002)  # in which another thread may read another partition into the same memory
        return found

    monkeypatch.setattr(TableSource, "states", slow)
    rules = Training(**SMALL).rules(5)
    warm = WarmStart(first, graph.manifest.relations or (), graph, rules)
    try:
        parts = np.array_split(np.arange(graph.num_nodes), 4)
        rows = warm.source.table.geometry.rows * 5

        def fill(nodes: Any) -> Any:
            slot = list(np.zeros((2, rows, 8), np.float32))
            warm.fill(nodes, slot)
            return np.stack(slot)[:, : len(nodes)]

        with ThreadPoolExecutor(4) as threads:
            filled = list(threads.map(fill, parts))
    finally:
        warm.close()
    old, _, _ = vectors(first)
    np.testing.assert_array_equal(np.concatenate(filled, axis=1), np.stack(old))


def test_partitions_are_of_equal_size_and_drawn() -> None:
    layout = node_layout(1001, 8, seed=3)
    assert set(layout.sizes) == {125, 126}
    nodes = np.concatenate([layout.nodes_of(p) for p in range(8)])
    np.testing.assert_array_equal(np.sort(nodes), np.arange(1001))
    assert abs(np.corrcoef(np.arange(1001), nodes)[0, 1]) < 0.8
    mixed = layout.nodes_of(0)
    assert mixed.min() < 100
    assert mixed.max() > 900


def test_initial_vectors_do_not_depend_on_partitions(graph: Graph, tmp_path: Path) -> None:
    found = []
    for partitions in (1, 4):
        folder = tmp_path / str(partitions)
        folder.mkdir()
        options = {**SMALL, "partitions": partitions, "batch": 16}
        begun = module.Run(Comm(), TrainTask(graph.path, folder, Training(**options)))  # type: ignore[arg-type]
        try:
            values = np.zeros((300, 8), np.float32)
            for partition in range(partitions):
                slot = [np.zeros((begun.table.geometry.rows, 8), np.float32) for _ in range(2)]
                begun._initial(partition, slot)
                nodes = begun.layout.nodes_of(partition)
                values[nodes] = slot[0][: len(nodes)]
            found.append(values)
        finally:
            begun.close()
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0].std() == pytest.approx(1e-3, rel=0.05)


def test_sides_of_options(graph: Graph) -> None:
    assert Training(corrupt="head", reciprocal=False).rules(5).sides == (Side.HEAD,)
    assert Training().rules(5).inverse == 5
    assert Training(model="transe").rules(5).inverse == 0
