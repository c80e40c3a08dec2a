"""The hidden share of the communication: its baseline is fair, and measuring changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.pipelines.generate import generate
from penstock.pipelines.partition import partition_graph
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo import overlap
from penstock.workers.gnn.halo.overlap import KINDS, measure_overlap, summary
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.gnn.train import _Trainer, train
from penstock.workers.training import checkpoint

MODELS = {
    "gcn": Model(layers=(Layer("gcn", 8, dropout=0.4), Layer("gcn")), input_dropout=0.2),
    "gin": Model(layers=(Layer("gin", 8, norm="batch"), Layer("gin"))),
    "gat": Model(layers=(Layer("gat", 8, heads=2, attention_dropout=0.3), Layer("gat"))),
    "sage": Model(layers=(Layer("sage", 8, aggregate="max", residual=True), Layer("sage"))),
}
CLASSES = 4


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sbm") / "g"
    generate("sbm", path, quiet=True, nodes=300, blocks=CLASSES, width=6, noise=2, seed=3)
    partition_graph(Graph.open(path), k=2, method="random", quiet=True)
    return path


# -- the definition, where time passes as the test says --------------------------------------------


class FakeRanks:
    """A comm and a network in one, of a rank that computes and exchanges for so many seconds."""

    def __init__(self, compute: float, exchange: float, *, pack: float, slower: float) -> None:
        self.now, self.kinds = 0.0, []
        self._compute, self._exchange, self._pack = compute, exchange, pack
        self._slower = slower  # how much later the other rank comes to an exchange
        self.clock = SimpleNamespace(settle=None)
        self.context = SimpleNamespace(on_gpu=False, like=np.empty(0, np.float32))
        self.halo = SimpleNamespace(transports=lambda like: ["pigeons"])

    def exchange(self, **how: Any) -> None:
        self._how = how

    def epoch(self) -> None:
        if self._how.get("skip_exchange"):
            self.now += self._compute
        elif self._how["overlap"]:
            self.now += self._pack + max(self._compute, self._exchange)
        else:
            self._how["before"]()
            self.now += self._pack + self._exchange + self._compute

    def barrier(self) -> None:
        self.now += self._slower

    def synchronize(self) -> None:
        """It computes as it is told to."""

    def allreduce(self, array: Any, operation: str) -> None:
        assert operation == "max"

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def transport(self, like: Any) -> str:
        return "post"


@pytest.mark.parametrize(
    ("compute", "exchange", "pack", "expected"),
    [
        (4.0, 2.0, 0.0, (0.0, 2.0, 1.0)),
        (4.0, 2.0, 0.5, (0.5, 2.5, 0.8)),
        (2.0, 4.0, 0.0, (2.0, 4.0, 0.5)),
        (0.0, 4.0, 1.0, (5.0, 5.0, 0.0)),
    ],
)
def test_the_share_is_of_what_an_epoch_is_longer(
    compute: float,
    exchange: float,
    pack: float,
    expected: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks: Any = FakeRanks(compute, exchange, pack=pack, slower=100.0)
    monkeypatch.setattr(overlap, "perf_counter", lambda: ranks.now)
    found = measure_overlap(ranks, ranks, ranks.epoch, lambda: None, 7)
    for name, value in zip(("exposed", "whole", "hidden"), expected, strict=True):
        assert found[name] == pytest.approx([value] * 3), name
    assert found["left_out"] == pytest.approx([compute] * 3)
    assert found["rounds"] == 7
    assert found["transport"] == {"rows": "pigeons", "sums": "post"}
    assert ranks._how == {"overlap": True}, "as in a training run, afterwards"


def test_medians_and_quartiles() -> None:
    left_out = np.full(9, 1.0)
    exposed, whole = np.arange(9) / 10, np.arange(9) / 10 + 1
    exposed[[0, 8]] = exposed[[8, 0]]
    found = summary(np.stack([left_out + exposed, left_out, left_out + whole], axis=1))
    assert found["exposed"] == pytest.approx([0.2, 0.4, 0.6])
    assert found["whole"] == pytest.approx([1.2, 1.4, 1.6])
    assert found["hidden"] == pytest.approx([1 - 0.6 / 1.4, 1 - 0.4 / 1.4, 1 - 0.2 / 1.4])


def test_what_cannot_be_told_from_noise_has_no_share() -> None:
    rng = np.random.default_rng(1)
    assert summary(1 + 0.1 * rng.normal(size=(9, 3)))["hidden"] is None
    assert summary(np.ones((7, 3)))["hidden"] is None


@pytest.mark.parametrize(
    ("exposed", "whole", "told"),
    [
        ([6.0, 10.5, 16.6], [1.4, 10.4, 18.1], False),  # a link of 10 Gbit/s, two cores
        ([8.0, 12.9, 18.0], [38.0, 42.1, 46.1], True),  # of 1 Gbit/s
        ([1.0, 4.0, 9.0], [10.0, 10.0, 10.0], False),
        ([1.0, 4.0, 8.0], [10.0, 10.0, 10.0], True),
        ([4.0, 4.0, 4.0], [1.0, 10.0, 10.0], False),
    ],
)
def test_a_share_whose_quartiles_are_far_apart_is_not_told(
    exposed: list[float], whole: list[float], told: bool
) -> None:
    ones = np.full(9, 1000.0)

    def rounds(quartiles: list[float]) -> Any:
        return ones + np.repeat(quartiles, 3)  # 3 of 9 each: the quartiles are these

    found = summary(np.stack([rounds(exposed), ones, rounds(whole)], axis=1))
    assert found["exposed"] == pytest.approx(exposed)
    assert found["whole"] == pytest.approx(whole)
    assert (found["hidden"] is not None) == told


def test_what_is_worse_than_no_overlap_is_negative() -> None:
    assert summary(np.array([[4.0, 1.0, 3.0]] * 7))["hidden"] == pytest.approx([-0.5] * 3)


# -- on ranks --------------------------------------------------------------------------------------


def task_of(graph: Path, model: Model, training: Training, folder: Path) -> TrainTask:
    opened = Graph.open(graph)
    partition, complete = partition_path(opened, 2), model.complete(CLASSES)
    facts = facts_of(opened, partition, training=training)
    plan = lower(complete, facts, training, GUESS["cpu"])
    return TrainTask(graph, partition, complete, training, plan, folder)


def two_ranks(graph: Path, folder: Path, model: Model, on_threads: Any, **options: Any) -> Trained:
    """Train on two ranks, and return what the first came to."""
    (folder / "checkpoints").mkdir(parents=True)
    task = task_of(graph, model, Training(**options), folder)
    found: list[Trained] = on_threads(2, lambda comm: train(comm, task))
    return found[0]


def curve(folder: Path) -> list[str]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line.split(', "seconds"')[0] for line in lines]


@pytest.mark.parametrize("name", MODELS)
def test_a_measured_training_is_the_same_to_the_last_bit(
    name: str, graph: Path, tmp_path: Path, on_threads: Any
) -> None:
    options: dict[str, Any] = {"epochs": 5, "schedule": "cosine", "warmup": 2}
    plain = two_ranks(graph, tmp_path / "plain", MODELS[name], on_threads, **options)
    options["measure_overlap"] = 7
    measured = two_ranks(graph, tmp_path / "measured", MODELS[name], on_threads, **options)
    assert plain.overlap is None
    assert measured.overlap is not None
    assert measured.overlap["rounds"] == 7
    rows = "shared memory of one host"
    assert measured.overlap["transport"] == {"rows": rows, "sums": "messages between threads"}
    assert curve(tmp_path / "measured") == curve(tmp_path / "plain")
    assert len(curve(tmp_path / "plain")) == 5
    assert measured.metrics == plain.metrics
    for which in ("last", "best"):
        ours, _ = checkpoint.load(tmp_path / f"measured/checkpoints/{which}.safetensors")
        theirs, _ = checkpoint.load(tmp_path / f"plain/checkpoints/{which}.safetensors")
        assert {n: t.tobytes() for n, t in ours.items()} == {
            n: t.tobytes() for n, t in theirs.items()
        }


@pytest.fixture
def with_trainer(graph: Path, tmp_path: Path, on_threads: Any) -> Callable[..., list[Any]]:
    """Call ``work(trainer)`` on two ranks, each with a training run of its own, two epochs old."""

    def call(model: Model, work: Callable[[Any], Any]) -> list[Any]:
        task = task_of(graph, model, Training(epochs=9), tmp_path)

        def rank(comm: Any) -> Any:
            with (
                open_local(comm, graph, task.partition, weighted=False) as local,
                ThreadPool(1) as pool,
            ):
                trainer = _Trainer(comm, task, local, pool)
                for _ in range(2):
                    trainer.bare_epoch()
                return work(trainer)

        return on_threads(2, rank)

    return call


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sharing", [True, False], ids=["shared", "messages"])
def test_an_epoch_that_leaves_the_communication_out_says_nothing(
    name: str, sharing: bool, with_trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(trainer: Any) -> None:
        trainer.network.halo.sharing = sharing
        trainer.bare_epoch()  # stale rows are those of an exchange by the same transport
        said: list[str] = []
        for name in ("isend", "irecv", "iallreduce", "barrier", "allgather"):
            setattr(trainer.comm, name, _overheard(name, getattr(trainer.comm, name), said))
        for kind in KINDS:
            told = said.copy()
            trainer.network.exchange(
                overlap=kind != "not_overlapped",
                skip_exchange=kind == "left_out",
                before=trainer.comm.barrier if kind == "not_overlapped" else None,
            )
            sent = trainer.network.halo.sent_bytes
            trainer.bare_epoch()
            now = said[len(told) :]
            assert (trainer.network.halo.sent_bytes > sent) == (kind != "left_out")
            assert bool(now) == (kind != "left_out"), kind
            # One before each exchange: of rows, there and back, and each sum over ranks.
            asked = now.count("isend") + now.count("iallreduce")
            assert now.count("barrier") == (asked if kind == "not_overlapped" else 0)

    with_trainer(MODELS[name], work)


def _overheard(name: str, call: Callable[..., Any], said: list[str]) -> Callable[..., Any]:
    def heard(*args: Any) -> Any:
        said.append(name)
        return call(*args)

    return heard
