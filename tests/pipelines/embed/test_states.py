"""Runs in every state: killed before a checkpoint, edited by hand, without their graph."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import CSR, ClusterSpec, Graph, embed, etl, generate
from penstock.errors import (
    CapacityError,
    CorruptFile,
    GraphError,
    InputError,
    OutputExists,
    PenstockError,
    PenstockWarning,
    UsageError,
)
from penstock.files import save_json
from penstock.pipelines.cli import run as cli
from penstock.pipelines.embed.evaluation import EvaluateJob
from penstock.pipelines.embed.options import EmbedOptions, EvaluateOptions
from penstock.pipelines.embed.planning import (
    batch_problem,
    check_graph,
    fewest_partitions,
    memory_to_train,
)
from penstock.pipelines.embed.run import Run
from penstock.pipelines.embed.training import TrainJob, _warn_empty_buckets
from penstock.pipelines.vectors import Vectors
from penstock.workers.embed.layout.buckets import build_buckets, largest_bucket
from penstock.workers.embed.source import TableSource, open_checkpoint, read_checkpoint
from penstock.workers.embed.spec import Training
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.train import node_layout, train

Trained = tuple[Path, embed.TrainReport]
SMALL: dict[str, Any] = {"dim": 16, "batch": 200, "negatives": 16, "schedule": "constant"}


def values(run: Path) -> Any:
    """Return the vectors of the last checkpoint, by node."""
    source, found = open_checkpoint(run / "checkpoints", "last")
    try:
        order = np.concatenate([source.layout.nodes_of(p) for p in range(source.layout.partitions)])
        rows = np.concatenate([part.copy() for _, part in source.parts()])
        return rows[np.argsort(order)], found.tensors["relations"]
    finally:
        source.close()


def same(one: Path, other: Path) -> None:
    for ours, theirs in zip(values(one), values(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def before_a_checkpoint(run: Path) -> None:
    """Make of a run what a kill before its first checkpoint leaves."""
    for path in (run / "checkpoints").glob("*.json"):
        path.unlink()


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change what a JSON file says."""
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


@pytest.fixture
def mine(trained: Trained, tmp_path: Path) -> Path:
    """A copy of a run, to be changed."""
    shutil.copytree(trained[0], tmp_path / "mine")
    return tmp_path / "mine"


# -- read while it trains --------------------------------------------------------------------------


class Alone:
    """The communicator of a training run that goes on meanwhile, of which it is the only rank."""

    rank, size = 0, 1

    def log(self, **metrics: Any) -> None:
        """Tell nobody."""

    def check(self) -> None:
        """Go on."""


@pytest.mark.parametrize(
    "what",
    ["export", *(pytest.param(name, marks=pytest.mark.slow) for name in ("evaluate", "predict"))],
)
def test_a_run_that_trains_meanwhile_is_read_as_of_one_checkpoint(
    tmp_path: Path, cluster: ClusterSpec, monkeypatch: Any, what: str
) -> None:
    """Partitions are read one after another, and written over in between."""
    generate("kg", tmp_path / "g", entities=60, triples=900, relations=2, valid=0.0, quiet=True)
    options: dict[str, Any] = {**SMALL, "batch": 20, "partitions": 4, "checkpoint_minutes": 1e-9}
    embed.train(tmp_path / "g", tmp_path / "run", epochs=1, cluster=cluster, **options)
    held = Run.load(tmp_path / "run")
    whole, rows, trained = TableSource._read, TableSource.vectors, []

    def read_slowly(read: Any, source: TableSource, partition: int) -> Any:
        if partition == 2 and len(trained) < 2:
            trained.append(3 + 2 * len(trained))
            training = replace(held.training, epochs=trained[-1])
            train(Alone(), TrainTask(tmp_path / "g", tmp_path / "run", training))  # type: ignore[arg-type]
        return read(source, partition)

    def ask() -> Any:
        if what == "evaluate":
            return embed.evaluate(tmp_path / "run", filtered=True, cluster=cluster).scores
        if what == "predict":
            asked = {"head": "e1", "relation": "r0", "known": True}
            return embed.predict(tmp_path / "run", cluster=cluster, **asked).answers
        embed.export(tmp_path / "run", tmp_path / "out", overwrite=True)
        return Vectors.open(tmp_path / "out").values.tolist()

    with monkeypatch.context() as patched:
        patched.setattr(TableSource, "_read", lambda *a: read_slowly(whole, *a))
        patched.setattr(TableSource, "vectors", lambda *a: read_slowly(rows, *a))
        found = ask()
    assert trained == [3, 5]
    assert found == ask()  # of the newest, which stays

    # What is damaged is said, without a second look.
    path = tmp_path / "run/checkpoints/nodes.table"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(CorruptFile, match="damaged"):
        ask()


def test_a_training_that_is_quicker_than_what_reads_it_is_said(mine: Path) -> None:
    path = mine / "checkpoints/last.json"

    def replaced(_source: Any, _found: Any) -> None:
        edit(path, lambda body: body.update(number=body["number"] + 1))
        raise CorruptFile("a page is of another version")

    with pytest.raises(PenstockError, match="5 times while it was read.*--checkpoint-minutes"):
        read_checkpoint(mine / "checkpoints", "last", replaced)


# -- killed, and resumed ---------------------------------------------------------------------------


def test_a_run_that_is_replaced_while_it_is_read_is_said(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By train --overwrite: it was called damaged, or a bug."""

    def read(path: Path, name: str) -> Any:
        mine.rename(mine.with_name("old"))
        mine.mkdir()
        raise FileNotFoundError(f"{path} is not there")

    monkeypatch.setattr("penstock.pipelines.embed.prediction.read_column", read)
    words = ["embed", "predict", str(mine), "--head", "e1", "--known", "--cluster", "threads"]
    assert cli(words) == 1
    said = f"penstock: {mine} was replaced while it was read. Run the command again.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("partitions", [None, 4])
def test_a_warm_start_that_was_killed_before_a_checkpoint_begins_anew(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec, partitions: int | None
) -> None:
    options = {**SMALL, "init": mine, "epochs": 1, "batch": 50, "partitions": partitions}
    embed.train(graph, tmp_path / "whole", cluster=cluster, **options)
    embed.train(graph, tmp_path / "run", cluster=cluster, **options)
    before_a_checkpoint(tmp_path / "run")
    again = embed.train(graph, tmp_path / "run", cluster=cluster, resume=True, **options)
    assert again.trained.known == {"nodes": 400, "relations": 6}
    same(tmp_path / "whole", tmp_path / "run")
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1
    before_a_checkpoint(tmp_path / "run")
    edit(mine / "checkpoints/best.json", lambda body: body["about"].update(note="trained further"))
    with pytest.raises(UsageError, match="mine has changed"):
        embed.train(graph, tmp_path / "run", cluster=cluster, resume=True, **options)


def test_a_run_goes_on_without_the_one_it_began_with(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    options = {**SMALL, "init": mine, "cluster": cluster}
    embed.train(graph, tmp_path / "whole", epochs=2, **options)
    embed.train(graph, tmp_path / "run", epochs=1, **options)
    shutil.rmtree(mine)
    again = embed.train(graph, tmp_path / "run", epochs=2, resume=True, **options)
    assert again.trained.known == {"nodes": 400, "relations": 6}
    same(tmp_path / "whole", tmp_path / "run")


def test_a_finished_run_is_resumed_without_a_cluster(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, more = tmp_path / "run", {**SMALL, "validate_every": 1, "cluster": cluster}
    first = embed.train(graph, run, epochs=2, **more)
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}

    def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("connected")

    monkeypatch.setattr("penstock.cluster.connect.connect", connect)
    (run / "ids.parquet").unlink()  # which is written again all the same
    found = embed.train(graph, run, epochs=2, resume=True, **more)
    edit(run / "run.json", lambda body: body["options"].pop("resume"))
    body = json.loads((run / "run.json").read_text())
    assert body == json.loads(files["run.json"])
    for name in ("ids.parquet", "metrics.jsonl"):
        assert (run / name).read_bytes() == files[name]
    assert (found.trained.first_epoch, found.trained.epochs, found.speed) == (2, 2, None)
    assert (found.device, found.trained.loss) == (first.device, first.trained.loss)
    assert found.trained.validation == first.trained.validation
    for other in ({"epochs": 3}, {"epochs": 2, "validate_sample": 10}):  # there is something to do
        with pytest.raises(AssertionError, match="connected"):
            embed.train(graph, run, resume=True, **more, **other)
        (run / "run.json").write_bytes(files["run.json"])
    (run / "checkpoints/nodes.table").unlink()
    with pytest.raises(GraphError, match=r"nodes\.table is missing"):
        embed.train(graph, run, epochs=2, resume=True, **more)
    assert (run / "run.json").read_bytes() == files["run.json"]


def test_a_batch_that_is_not_given_again_stays(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    embed.train(graph, tmp_path / "whole", epochs=2, cluster=cluster, **SMALL)
    embed.train(graph, tmp_path / "run", epochs=1, cluster=cluster, **SMALL)
    options = {**SMALL, "batch": None}
    embed.train(graph, tmp_path / "run", epochs=2, resume=True, cluster=cluster, **options)
    same(tmp_path / "whole", tmp_path / "run")
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError, match=r"has trained 2 epochs.*--epochs 2 or more, got 1"):
        embed.train(graph, tmp_path / "run", epochs=1, resume=True, cluster=cluster, **options)
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_more_epochs_are_offered_where_they_go_on(
    trained: Trained, graph: Graph, cluster: ClusterSpec
) -> None:
    with pytest.raises(OutputExists) as error:
        embed.train(graph, trained[0], dim=16, epochs=10, batch=200, cluster=cluster)
    assert "--resume" not in str(error.value)
    assert "Replace it with --overwrite" in str(error.value)


def test_a_line_that_was_cut_off_is_dropped(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    embed.train(graph, tmp_path / "run", epochs=1, cluster=cluster, **SMALL)
    lines = tmp_path / "run/metrics.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"epoch": 2, "lo\xc3')
    embed.train(graph, tmp_path / "run", epochs=2, resume=True, cluster=cluster, **SMALL)
    assert [json.loads(line)["epoch"] for line in lines.read_text().splitlines()] == [1, 2]


# -- edited by hand --------------------------------------------------------------------------------


def fewer_relations(body: Any) -> None:
    body["relations"].pop()


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["training"].update(dim=32),
        lambda body: body["training"].update(model="rotate"),
        lambda body: body["training"].update(optimizer="adam"),
        lambda body: body["training"].update(dim="many"),
        lambda body: body["training"].update(model=None),
        lambda body: body.update(nodes=399),
        lambda body: body.update(nodes="400"),
        lambda body: body.update(graph=7),
        fewer_relations,
    ],
    ids=[
        "dim",
        "model",
        "optimizer",
        "bad dim",
        "no model",
        "nodes",
        "bad nodes",
        "graph",
        "relations",
    ],
)
def test_a_manifest_of_other_vectors_is_refused(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec, change: Any
) -> None:
    edit(mine / "run.json", change)
    asked = {"head": "e1", "relation": "r0"}
    for does in (
        lambda: embed.evaluate(mine, cluster=cluster),
        lambda: embed.predict(mine, cluster=cluster, **asked),
        lambda: embed.export(mine, tmp_path / "v"),
    ):
        with pytest.raises(CorruptFile, match="run.json"):
            does()
    assert not (tmp_path / "v").exists()


def update(body: Any, **training: Any) -> None:
    body["training"].update(training)


def backwards(path: Path) -> None:
    pq.write_table(pq.read_table(path).take(np.arange(400)[::-1].copy()), path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("run.json", lambda path: edit(path, lambda body: body["relations"].reverse())),
        (
            "run.json",
            lambda path: edit(path, lambda body: body["training"].update(model="distmult")),
        ),
        ("run.json", lambda path: edit(path, lambda body: body["training"].update(seed=1))),
        ("ids.parquet", backwards),
    ],
    ids=["relations", "model", "seed", "ids"],
)
def test_a_run_whose_rows_would_be_taken_for_others_is_refused(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec, name: str, change: Any
) -> None:
    change(mine / name)
    before = (mine / "run.json").read_bytes()
    training = json.loads(before)["training"]
    again = {key: training[key] for key in ("model", "dim", "epochs", "batch", "seed")}
    for does in (
        lambda: embed.evaluate(mine, cluster=cluster),
        lambda: embed.predict(mine, cluster=cluster, head="e1", relation="r0"),
        lambda: embed.export(mine, tmp_path / "v"),
        lambda: embed.vectors(mine),
        lambda: embed.train(graph, tmp_path / "r", init=mine, dim=16, cluster=cluster),
        lambda: embed.train(graph, mine, resume=True, cluster=cluster, **again),
    ):
        with pytest.raises(CorruptFile, match="do not belong together.*Restore the file"):
            does()
    assert (mine / "run.json").read_bytes() == before


def test_files_of_another_run_are_refused(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = {**SMALL, "batch": 50, "partitions": 4, "cluster": cluster}
    embed.train(graph, one, epochs=1, **options)
    embed.train(graph, two, epochs=1, seed=1, **options)
    for names, said in (
        ("nodes.table", "nodes.table is of another run"),
        ("places.npy", "do not belong together"),
        ("[lr]*", "do not belong together"),  # last.json and its relations
    ):
        mixed = shutil.copytree(one, tmp_path / f"with {names[:5]}")
        for path in (two / "checkpoints").glob(names):
            shutil.copy(path, mixed / "checkpoints")
        with pytest.raises(CorruptFile, match=said):
            embed.export(mixed, tmp_path / "v", checkpoint="last")
        with pytest.raises(CorruptFile, match=said):
            embed.train(graph, mixed, epochs=2, resume=True, **options)


def test_a_table_of_another_run_is_not_mapped(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    other = tmp_path / "other"
    embed.train(graph, other, dim=16, epochs=10, batch=200, seed=1, cluster=cluster)
    shutil.copy(other / "checkpoints/nodes.table", mine / "checkpoints")
    with pytest.raises(CorruptFile, match="nodes.table is of another run"):
        embed.vectors(mine, checkpoint="last")


@pytest.mark.parametrize("number", [None, 399, 401])
def test_ids_of_other_nodes_are_refused_and_written_again(
    mine: Path, graph: Graph, tmp_path: Path, cluster: ClusterSpec, number: int | None
) -> None:
    path, before = mine / "ids.parquet", pq.read_table(mine / "ids.parquet")
    path.unlink()
    if number is not None:
        ids = [*before.column("id").to_pylist(), "more"][:number]
        pq.write_table(pa.table({"id": ids}), path)
    for does in (
        lambda: embed.evaluate(mine, cluster=cluster),
        lambda: embed.predict(mine, cluster=cluster, head="e1", relation="r0"),
        lambda: embed.export(mine, tmp_path / "v"),
        lambda: embed.vectors(mine),
        lambda: embed.train(graph, tmp_path / "r", init=mine, dim=16, cluster=cluster),
    ):
        with pytest.raises(CorruptFile, match="ids.parquet is damaged"):
            does()
    embed.train(graph, mine, dim=16, epochs=10, batch=200, resume=True, cluster=cluster)
    assert pq.read_table(path).equals(before)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["partitions"].pop(),
        lambda body: body["partitions"].__setitem__(0, [7, 1]),
        lambda body: body["partitions"].__setitem__(0, ["0", 1]),
        lambda body: body.pop("partitions"),
        lambda body: body["geometry"].update(files=0),
        lambda body: body.update(number="1"),
    ],
    ids=["too few", "place", "text", "none", "files", "number"],
)
def test_a_checkpoint_that_names_no_places_is_refused(
    mine: Path, cluster: ClusterSpec, change: Any
) -> None:
    edit(mine / "checkpoints/best.json", change)
    with pytest.raises(CorruptFile, match=r"best\.json is damaged"):
        embed.evaluate(mine, cluster=cluster)


@pytest.mark.parametrize(
    ("change", "what"),
    [(lambda about: about.pop("epoch"), "epoch: "), (None, "about")],
    ids=["no epoch", "no position"],
)
def test_a_checkpoint_without_its_position_is_refused(
    mine: Path, graph: Graph, cluster: ClusterSpec, change: Any, what: str
) -> None:
    edit(
        mine / "checkpoints/last.json",
        lambda body: change(body["about"]) if change else body.update(about=[]),
    )
    with pytest.raises(CorruptFile, match=rf"last\.json.*{what}"):
        embed.train(graph, mine, cluster=cluster, dim=16, epochs=10, batch=200, resume=True)


@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_table_that_is_lost_is_not_made_again(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, capsys: Any, partitions: int, how: str
) -> None:
    run, more = tmp_path / "run", {**SMALL, "batch": 50, "partitions": partitions}
    embed.train(graph, run, epochs=1, cluster=cluster, **more)
    table = run / "checkpoints/nodes.table"
    part = table.read_bytes()[:5000]
    table.unlink()
    if how == "truncated":
        table.write_bytes(part)
    said = "is missing" if how == "missing" else "has the wrong size.*got 5000 bytes"
    before = (run / "run.json").read_bytes()
    with pytest.raises(GraphError, match=rf"nodes\.table {said}"):
        embed.train(graph, run, epochs=2, cluster=cluster, resume=True, **more)
    assert table.exists() == (how == "truncated")
    assert how == "missing" or table.read_bytes() == part
    assert "--resume will" not in capsys.readouterr().err  # it would fail again
    assert json.loads((run / "run.json").read_bytes()) == json.loads(before)


def test_the_vectors_are_not_in_memory_after_training(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not until the garbage collector runs, either."""
    import gc
    import weakref

    from penstock.workers.embed import buffer as module

    there: list[Any] = []
    begun = module.PartitionBuffer.__init__

    def watched(self: Any, *args: Any, **options: Any) -> None:
        begun(self, *args, **options)
        there.append(weakref.ref(self))

    monkeypatch.setattr(module.PartitionBuffer, "__init__", watched)
    gc.disable()
    try:
        embed.train(graph, tmp_path / "run", epochs=1, cluster=cluster, **SMALL)
    finally:
        gc.enable()
    assert there
    assert all(one() is None for one in there)


@pytest.mark.gpu
def test_a_gpus_memory_is_given_back_after_training(graph: Graph, tmp_path: Path) -> None:
    import cupy

    pool, spec = cupy.get_default_memory_pool(), ClusterSpec(cluster="threads", device="gpu")
    cupy.empty(64 << 20, cupy.uint8)  # goes back to the pool, which keeps it
    assert pool.free_bytes() >= 64 << 20
    found = embed.train(graph, tmp_path / "run", epochs=1, cluster=spec, **SMALL)
    assert found.device == "gpu"
    assert pool.free_bytes() < 8 << 20  # what lies between what is still used


def test_vectors_that_a_checkpoint_says_were_never_written_are_not_begun_again(
    mine: Path, graph: Graph, cluster: ClusterSpec
) -> None:
    edit(mine / "run.json", lambda body: body.update(state="interrupted"))
    edit(mine / "checkpoints/last.json", lambda body: body["partitions"][0].__setitem__(1, 0))
    again: dict[str, Any] = {"dim": 16, "epochs": 10, "batch": 200, "resume": True}
    with pytest.raises(CorruptFile, match=r"last\.json is damaged.*never written"):
        embed.train(graph, mine, cluster=cluster, **again)


def test_a_run_whose_rate_has_fallen_is_begun_from_and_not_resumed(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    more: dict[str, Any] = {"batch": 200, "cluster": cluster}
    embed.train(graph, tmp_path / "run", dim=8, epochs=1, **more)
    with pytest.raises(UsageError, match=r"epochs: 2, in the run 1.*--init, as its learning rate"):
        embed.train(graph, tmp_path / "run", dim=8, epochs=2, resume=True, **more)
    with pytest.raises(UsageError, match=r"dim: 16, in the run 8") as found:
        embed.train(graph, tmp_path / "run", dim=16, epochs=2, resume=True, **more)
    assert "--init" not in str(found.value)


def test_the_best_vectors_may_be_lost(graph: Graph, tmp_path: Path, cluster: ClusterSpec) -> None:
    """A run that goes on has the best of those that it validates then."""
    more = {**SMALL, "epochs": 2, "validate_every": 1, "cluster": cluster}
    embed.train(graph, tmp_path / "run", **more)
    (tmp_path / "run/checkpoints/best.json").unlink()
    with pytest.warns(
        PenstockWarning, match=r"best\.json, of epoch \d, is not there.* from now on"
    ):
        found = embed.train(graph, tmp_path / "run", **{**more, "epochs": 3}, resume=True)
    assert found.trained.best_epoch == 3
    assert embed.evaluate(tmp_path / "run", cluster=cluster).checkpoint == "best"
    (tmp_path / "run/checkpoints/last.json").unlink()
    with pytest.warns(PenstockWarning, match=r"last\.json is not there: .* from the first epoch"):
        found = embed.train(graph, tmp_path / "run", **{**more, "epochs": 3}, resume=True)
    assert (found.trained.first_epoch, found.trained.epochs) == (0, 3)


def test_the_best_vectors_are_lost_of_a_run_without_epochs_left(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    more = {**SMALL, "epochs": 2, "validate_every": 1, "cluster": cluster}
    embed.train(graph, tmp_path / "run", **more)
    (tmp_path / "run/checkpoints/best.json").unlink()
    with pytest.warns(PenstockWarning, match=r"best\.json, .* only --checkpoint last can be read"):
        embed.train(graph, tmp_path / "run", **more, resume=True)
    found = embed.evaluate(tmp_path / "run", cluster=cluster, checkpoint="last")
    assert found.checkpoint == "last"


@pytest.mark.parametrize("state", ["done", "interrupted"])
def test_the_only_checkpoint_may_be_lost(tmp_path: Path, cluster: ClusterSpec, state: str) -> None:
    """One without a best, as nothing was validated."""
    table = {"head": list("abcd"), "relation": ["r"] * 4, "tail": list("bcda")}
    pq.write_table(pa.table(table), tmp_path / "edges.parquet")
    columns = {"source": "head", "target": "tail", "relation": "relation"}
    etl(tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster, **columns)
    graph, more = tmp_path / "g", {**SMALL, "batch": 4, "epochs": 2, "cluster": cluster}
    embed.train(graph, tmp_path / "run", **more)
    (tmp_path / "run/checkpoints/last.json").unlink()
    edit(tmp_path / "run/run.json", lambda body: body.update(state=state))
    with pytest.warns(PenstockWarning, match=r"last\.json is not there: .* from the first epoch"):
        found = embed.train(graph, tmp_path / "run", **{**more, "epochs": 3}, resume=True)
    assert (found.trained.first_epoch, found.trained.epochs) == (0, 3)


def test_an_id_may_hold_the_end_of_a_line(tmp_path: Path, cluster: ClusterSpec) -> None:
    table = {"head": ["a\rx", "b"], "relation": ["r", "r"], "tail": ["b", "c"]}
    pq.write_table(pa.table(table), tmp_path / "edges.parquet")
    columns = {"source": "head", "target": "tail", "relation": "relation"}
    etl(tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster, **columns)
    embed.train(tmp_path / "g", tmp_path / "run", dim=4, epochs=1, cluster=cluster)
    for text in (b"a\rx\tr\tb\n", b"a\rx\tr\tb\r\nb\tr\tc\r\n", b"b\tr\tc"):
        (tmp_path / "triples").write_bytes(text)
        found = embed.evaluate(tmp_path / "run", triples=tmp_path / "triples", cluster=cluster)
        assert found.edges == text.count(b"r\t")


def test_a_run_of_other_partitions_than_its_checkpoint_is_refused(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    """Edges of partitions that the schedule does not have would never be trained."""
    run, more = tmp_path / "run", {**SMALL, "batch": 10}
    embed.train(graph, run, partitions=12, epochs=1, cluster=cluster, **more)
    edit(run / "run.json", lambda body: body["training"].update(partitions=8))
    with pytest.raises(CorruptFile, match=r"12 partitions, as the checkpoint has, got 8"):
        embed.train(graph, run, epochs=2, resume=True, cluster=cluster, **more)


def test_places_that_are_not_there_are_refused(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    run = tmp_path / "run"
    embed.train(graph, run, partitions=4, epochs=1, cluster=cluster, **{**SMALL, "batch": 50})
    path = run / "checkpoints/places.npy"
    places = np.load(path)
    places[3] = 10**6
    np.save(path, places)
    with pytest.raises(CorruptFile, match=r"places\.npy is damaged"):
        embed.export(run, tmp_path / "v")


# -- other graphs, and none ------------------------------------------------------------------------


def test_ids_of_another_type_are_compared_as_text(tmp_path: Path, cluster: ClusterSpec) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 40, (2, 400))
    csr = CSR.from_edges(*ends, 40, relations=rng.integers(0, 2, 400).astype(np.int32))
    for name, ids in (("number", list(range(40))), ("text", [*map(str, range(39)), "new"])):
        with Graph.create(tmp_path / name) as writer:
            writer.edges(csr)
            writer.nodes(ids)
            writer.manifest = replace(writer.manifest, relations=("a", "b"))
    small = {**SMALL, "batch": 50, "epochs": 1, "cluster": cluster}
    for one, other in (("number", "text"), ("text", "number")):
        embed.train(tmp_path / one, tmp_path / f"{one}-run", **small)
        warm = {**small, "init": tmp_path / f"{one}-run"}
        found = embed.train(tmp_path / other, tmp_path / f"{other}-warm", **warm)
        assert found.trained.known == {"nodes": 39, "relations": 2}
        ranked = embed.evaluate(
            tmp_path / f"{one}-run", graph=tmp_path / other, split="train", unknown="skip",
            cluster=cluster,
        )  # fmt: skip
        assert ranked.skipped == np.count_nonzero((ends == 39).any(axis=0))


def test_a_graph_without_relations_has_no_edges_to_rank(
    trained: Trained, tmp_path: Path, cluster: ClusterSpec
) -> None:
    generate(
        "sbm", tmp_path / "g", nodes=60, blocks=2, degree_inside=6, degree_outside=1, quiet=True
    )
    with pytest.raises(UsageError, match="has no relations"):
        embed.evaluate(trained[0], graph=tmp_path / "g", split="train", cluster=cluster)


def test_known_answers_need_no_graph(mine: Path, tmp_path: Path, cluster: ClusterSpec) -> None:
    edit(mine / "run.json", lambda body: body.update(graph=str(tmp_path / "gone")))
    asked = {"head": "e1", "relation": "r0", "top": 3}
    assert len(embed.predict(mine, known=True, cluster=cluster, **asked).answers) == 3
    with pytest.raises(UsageError, match="is not at .*gone any more"):
        embed.predict(mine, cluster=cluster, **asked)


def test_triples_of_an_undirected_graph_answer_both_ways(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    """With every pair of nodes known, in one direction, no candidate is left to rank above."""
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\na,b\nb,c\n")
    etl(edges, tmp_path / "g", directed=False, cluster=cluster)
    more: dict[str, Any] = {"dim": 4, "batch": 2, "epochs": 1, "model": "dot"}
    embed.train(tmp_path / "g", tmp_path / "run", cluster=cluster, **more)
    triples = tmp_path / "triples"
    triples.write_text("a\ta\nb\tb\nc\tc\na\tb\nb\tc\nc\ta\n")
    found = embed.evaluate(tmp_path / "run", triples=triples, filtered=True, cluster=cluster)
    assert found.scores["mr"] == 1


def test_a_run_on_a_disk_that_is_only_read_is_ranked(
    trained: Trained, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise OSError(30, "Read-only file system", str(trained[0]))

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    assert embed.evaluate(trained[0], cluster=cluster).edges > 0
    asked = {"head": "e1", "relation": "r0", "top": 3}
    assert len(embed.predict(trained[0], cluster=cluster, **asked).answers) == 3


def test_triples_end_at_line_feeds_only(tmp_path: Path, cluster: ClusterSpec, graph: Graph) -> None:
    odd = "one\u2028two\x85three"
    with Graph.create(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(np.array([0, 1]), np.array([1, 2]), 3))
        writer.nodes([odd, "b", "c"])
    small = {**SMALL, "model": "dot", "batch": None, "epochs": 1, "cluster": cluster}
    embed.train(tmp_path / "g", tmp_path / "run", **small)
    (tmp_path / "t").write_text(f"{odd}\tb\r\nb\tc\n", newline="", encoding="utf-8-sig")
    assert embed.evaluate(tmp_path / "run", triples=tmp_path / "t", cluster=cluster).edges == 2
    (tmp_path / "t").write_text("b\tx\ny\tc\n")
    with pytest.raises(UsageError, match="no edge of .* is known to .*got 2 edges"):
        embed.evaluate(tmp_path / "run", triples=tmp_path / "t", unknown="skip", cluster=cluster)


def test_the_name_of_a_relation_may_be_empty(
    tmp_path: Path, cluster: ClusterSpec, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {"entities": 60, "triples": 900, "relations": 2, "quiet": True}
    generate("kg", tmp_path / "g", **made)
    names = ("", "r1")
    replace(Graph.open(tmp_path / "g").manifest, relations=names).save(tmp_path / "g")
    run, triples = tmp_path / "run", tmp_path / "triples"
    embed.train(tmp_path / "g", run, epochs=1, batch=20, dim=4, cluster=cluster)
    answers = [
        embed.predict(run, head="e1", relation=name, known=True, cluster=cluster).answers
        for name in names
    ]
    assert answers[0] != answers[1]
    line = ["embed", "predict", str(run), "--head", "e1", "--relation", "", "--known", "--json"]
    assert cli([*line, "--cluster", "threads"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"] == answers[0]
    scores = []
    for name in names:
        triples.write_text(f"e1\t{name}\te2\ne2\t{name}\te3\n")
        scores.append(embed.evaluate(run, triples=triples, cluster=cluster))
    assert [one.edges for one in scores] == [2, 2]
    assert scores[0].scores != scores[1].scores
    # Of a run that has none of this name.
    with pytest.raises(UsageError, match="has no relation ''.*one of 6, such as "):
        embed.predict(trained[0], head="e1", relation="", cluster=cluster)
    with pytest.raises(UsageError, match="--relation is missing"):
        embed.predict(trained[0], head="e1", cluster=cluster)
    triples.write_text("e1\t\te2\n")
    with pytest.raises(InputError, match=r"1 unknown relation \(''\)"):
        embed.evaluate(trained[0], triples=triples, cluster=cluster)


def test_a_graph_that_was_made_again_is_said(
    tmp_path: Path, cluster: ClusterSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python, and on the command line also with -q."""
    made = {"entities": 60, "triples": 900, "relations": 2, "quiet": True}
    generate("kg", tmp_path / "g", **made)
    embed.train(tmp_path / "g", tmp_path / "run", epochs=1, batch=20, cluster=cluster, dim=4)
    line = ["embed", "evaluate", str(tmp_path / "run"), "--cluster", "threads", "-q"]
    generate("kg", tmp_path / "g", seed=0, overwrite=True, **made)
    assert cli(line) == 0
    assert capsys.readouterr().err == ""
    generate("kg", tmp_path / "g", seed=1, overwrite=True, **made)
    with pytest.warns(PenstockWarning, match="g has changed since") as found:
        embed.evaluate(tmp_path / "run", cluster=cluster)
    assert [one.filename for one in found] == [__file__]
    capsys.readouterr()
    assert cli(line) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"penstock: warning: {tmp_path / 'g'} has changed since")
    assert err.count("\n") == 1


def test_a_best_checkpoint_that_is_gone_is_said(mine: Path, cluster: ClusterSpec) -> None:
    (mine / "checkpoints/best.json").unlink()
    with pytest.raises(CorruptFile, match=r"best.json is missing.*--checkpoint last"):
        embed.evaluate(mine, cluster=cluster)
    assert embed.evaluate(mine, checkpoint="last", cluster=cluster).edges


# -- options that meet -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["beta", "cover"])
def test_of_one_partition_every_order_is_the_same(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, order: str
) -> None:
    for name, options in (("one", {"order": order}), ("given", {"order": order, "partitions": 1})):
        embed.train(graph, tmp_path / name, epochs=1, cluster=cluster, **SMALL, **options)
    embed.train(graph, tmp_path / "plain", epochs=1, cluster=cluster, **SMALL)
    same(tmp_path / "one", tmp_path / "plain")
    same(tmp_path / "given", tmp_path / "plain")


def test_a_plan_tells_of_a_disk_that_is_too_small(
    graph: Graph, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sizes.free_disk", lambda folder: 50_000)
    words = ["embed", "train", str(graph.path), str(tmp_path / "run"), "--dim", "8"]
    words += ["--partitions", "4", "--cluster", "threads"]
    assert cli([*words, "--plan"]) == 0
    said = capsys.readouterr()
    assert "4 partitions on disk" in said.out
    assert "the vectors of 400 nodes would not fit" in said.err
    assert cli(words) == 1
    assert not (tmp_path / "run").exists()


def test_options_that_would_be_ignored_are_refused(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no option 'graph'"):
        embed.export(trained[0], tmp_path / "v", graph=tmp_path)
    with pytest.raises(UsageError, match="--graph has no meaning with --known"):
        embed.predict(trained[0], head="e1", relation="r0", known=True, graph=tmp_path)
    with pytest.raises(UsageError, match="--split and --triples cannot go together"):
        embed.evaluate(trained[0], split="test", triples=tmp_path / "t")
    with pytest.raises(UsageError, match="--seed draws --candidates and --sample"):
        embed.evaluate(trained[0], seed=0)
    with pytest.raises(UsageError, match="--unknown is about edges of --triples"):
        embed.evaluate(trained[0], unknown="error")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefetch": False}, "--no-prefetch: of no effect, as all vectors are in memory"),
        ({"order": "cover", "partitions": 1}, "--order cover: of no effect"),
        ({"prefetch": True, "order": "prefetch"}, "--prefetch and --order prefetch: of no effect"),
        ({"prefetch": False, "order": "beta"}, "--no-prefetch and --order beta: of no effect"),
        ({"patience": 1, "validate_every": 100, "epochs": 6}, "--patience 1: of no effect"),
        ({"patience": 1, "validate_every": 1, "epochs": 2}, "--patience 1: of no effect"),
        ({"patience": 1, "validate_every": 1, "epochs": 3}, None),
        ({"prefetch": False, "order": "beta", "partitions": 4}, None),
        ({"order": "beta", "partitions": 3}, "--order beta: of no effect, as all vectors are in"),
    ],
    ids=str,
)
def test_options_without_effect_are_told(
    graph: Graph,
    tmp_path: Path,
    cluster: ClusterSpec,
    options: dict[str, Any],
    said: str | None,
) -> None:
    options = {**SMALL, "batch": 50, "epochs": 1, **options}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        embed.train(graph, tmp_path / "run", cluster=cluster, **options)
    told = [str(one.message) for one in found if "of no effect" in str(one.message)]
    assert len(told) == (said is not None)
    assert all(one.startswith(str(said)) for one in told)


def test_partitions_with_hardly_an_edge_a_bucket_are_told() -> None:
    with pytest.warns(PenstockWarning, match=r"--partitions 80: of the 6,400 buckets, for 6,000"):
        _warn_empty_buckets(6000, 80)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PenstockWarning)
        _warn_empty_buckets(6400, 80)
        _warn_empty_buckets(1, 1)


def test_options_without_effect_are_told_of_a_run_that_goes_on(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    more = {**SMALL, "batch": 50, "epochs": 2, "cluster": cluster}
    embed.train(graph, tmp_path / "run", **more)
    more |= {"epochs": 3, "resume": True, "prefetch": False, "patience": 50}
    with (
        pytest.warns(PenstockWarning, match="--no-prefetch: of no effect"),
        pytest.warns(PenstockWarning, match="--patience 50: of no effect"),
    ):
        found = embed.train(graph, tmp_path / "run", **more)
    assert "for the disk" not in found.text()  # its vectors were read once, and never swapped


def test_a_warm_start_from_a_run_of_other_nodes_is_told(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, make_graph: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    embed.train(make_graph(relations=2), tmp_path / "other", dim=4, epochs=1, cluster=cluster)
    heard: list[str] = []
    monkeypatch.setattr(
        "penstock.pipelines.embed.progress.EdgeBar.on_metrics",
        lambda self, rank, metrics: heard.append("edges" if metrics.get("edges") else "begun"),
    )
    monkeypatch.setattr("penstock.pipelines.embed.training.warn", heard.append)
    embed.train(graph, tmp_path / "run", init=tmp_path / "other", dim=4, epochs=2, cluster=cluster)
    (told,) = (said for said in heard if "nothing began" in said)
    assert re.search("other has no node of ", told)
    assert heard.index(told) < heard.index("edges")  # not when all epochs are over


def test_warnings_come_also_with_q(
    tmp_path: Path, make_graph: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = make_graph(relations=2, times=True, weights=True)
    line = ["embed", "train", str(graph.path), str(tmp_path / "run"), "--dim", "4", "--epochs", "1"]
    line += ["--batch", "50", "--no-prefetch", "--cluster", "threads", "-q"]
    assert cli(line) == 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:2] == [
        f"penstock: warning: {graph.path}: embed ignores its weights and times; all edges are "
        "alike",
        "penstock: warning: --no-prefetch: of no effect, as all vectors are in memory; "
        "--partitions divides them",
    ]
    assert all(one.startswith("penstock: warning: ") for one in lines)


def test_a_warm_start_wants_the_same_norm(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    options = {**SMALL, "model": "transe", "epochs": 1, "cluster": cluster}
    embed.train(graph, tmp_path / "one", **options)
    with pytest.raises(UsageError, match="another --norm"):
        embed.train(graph, tmp_path / "two", norm=2, init=tmp_path / "one", **options)
    embed.train(graph, tmp_path / "two", norm=1, init=tmp_path / "one", **options)


def test_a_recipe_is_checked_together_with_the_options_beside_it(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("margin: 2\ndim: 7\n")
    made = embed.EmbedOptions(recipe=recipe, loss="margin", dim=8)
    assert (made.margin, made.dim) == (2, 8)
    with pytest.raises(UsageError, match="--margin needs --loss"):
        embed.EmbedOptions(recipe=recipe, dim=8)


def test_gradients_of_all_pieces_are_counted(graph: Graph) -> None:
    """A large batch has many pieces, each of which has gradients of all its negatives."""
    from penstock.kernels.cpu.embed.step import piece_cuts, pieces_of

    for edges, chunk in ((1, 1), (1000, 1000), (1000, 7), (5000, 999), (100_000, 100_000)):
        assert pieces_of(edges, chunk) == len(piece_cuts(edges, chunk))
    large = Graph(graph.path, replace(graph.manifest, nodes=10**6, edges=10**7))
    training = Training(model="complex", negatives="all", batch=100_000)
    held = len(piece_cuts(100_000, 100_000)) * 10**6 * 100 * 4
    assert memory_to_train(large, training) > held


def test_partitions_beyond_any_use_are_refused(graph: Graph) -> None:
    large = Graph(graph.path, replace(graph.manifest, nodes=10**6, edges=10**7))
    check_graph(large, Training(partitions=1024))
    with pytest.raises(UsageError, match="--partitions 1,024 or less.*Leave --partitions out"):
        check_graph(large, Training(partitions=1025))
    check_graph(large, Training(partitions=4096), 4)
    with pytest.raises(UsageError, match="--partitions 4,096 or less"):
        check_graph(large, Training(partitions=4112), 8)
    with pytest.raises(UsageError, match="cover cannot arrange 12"):
        check_graph(large, Training(partitions=12, order="cover"))
    # However little memory there is, no more of them are chosen.
    huge = Graph(graph.path, replace(graph.manifest, nodes=10**11, edges=10**7))
    for order in ("prefetch", "cover"):
        assert fewest_partitions(huge, Training(model="complex", order=order), 10**9) == 1


def test_a_full_disk_is_told_of_where_it_was_met(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Not where the run tried to note that it ended; and how to resume is said all the same."""
    from penstock.workers.embed import train as module

    append, full = module.append_text, []

    def save(path: Path, value: Any) -> None:
        if full:
            raise CapacityError(f"the disk is full: could not write {path}")
        save_json(path, value)

    def fill(path: Path, line: str) -> None:
        if path.is_file() and path.stat().st_size:
            full.append(path)
            raise CapacityError("the disk is full: could not write a line")
        append(path, line)

    monkeypatch.setattr(module, "append_text", fill)
    monkeypatch.setattr("penstock.formats.save_json", save)
    with pytest.raises(CapacityError, match="could not write a line"):
        embed.train(graph, tmp_path / "run", epochs=3, cluster=cluster, **SMALL)
    assert "The run is kept" in capsys.readouterr().err


def test_a_plan_of_an_evaluation_counts_queries_and_known_answers(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    generate("kg", tmp_path / "g", entities=60, triples=900, relations=2, valid=0.0, quiet=True)
    embed.train(tmp_path / "g", tmp_path / "run", epochs=1, cluster=cluster, **SMALL)
    needs = []
    for options in ({}, {"filtered": True}, {"filtered": True, "split": "train"}):
        given = EvaluateOptions(**options)
        job = EvaluateJob(tmp_path / "run", tmp_path / "run", given, cluster, quiet=True)
        job.check()
        needs.append(job.memory())
    edges = Graph.open(tmp_path / "g").num_edges
    assert needs[1] - needs[0] > 12 * edges  # places of answers and their offsets, at least
    assert needs[2] - needs[1] > 16 * edges * 16 / 2


@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        ({"partitions": 5}, "bucket of edges, between two of 5 partitions", "--partitions"),
        ({"parts": 2}, "what each of 2 ranks trains in a round", "--parts"),
        ({"parts": 2, "partitions": 4}, "what each of 2 ranks trains in a round", "--parts"),
        ({"parts": 2, "partitions": 16}, "between two of 16 partitions", "--partitions"),
    ],
    ids=str,
)
def test_a_batch_is_refused_by_the_plan_as_by_the_training(
    graph: Graph,
    tmp_path: Path,
    cluster: ClusterSpec,
    options: dict[str, Any],
    said: str,
    remedy: str,
) -> None:
    """Before anything is written, and by what was asked for: up to the largest that is fine."""
    ranks, partitions = options.get("parts", 1), options.get("partitions", 1)
    if "bucket" in said or partitions == 16:
        most = largest_bucket(graph, node_layout(graph.num_nodes, partitions, 0))
        built = build_buckets(graph, node_layout(graph.num_nodes, partitions, 0), tmp_path / "b")
        assert most == built.largest
    else:
        most = graph.num_edges // 6
    fine = Training(model="complex", partitions=options.get("partitions"), batch=most)
    assert batch_problem(graph, fine, ranks) is None
    given = {"batch": most + 1, "dim": 8, "epochs": 1, **options}
    with pytest.raises(UsageError) as error:
        embed.train(graph, tmp_path / "run", cluster=cluster, **given)
    assert said in str(error.value)
    assert f"--batch {most:,} or less" in str(error.value)
    assert remedy in str(error.value)
    assert not (tmp_path / "run").exists()
    if "partitions" not in options:  # how many there are is known of the workers' memory
        job = TrainJob(graph, tmp_path / "run", EmbedOptions(**given), cluster, quiet=True)
        job.check()
        assert said in str(job.plan().problem)
