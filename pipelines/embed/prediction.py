"""``penstock embed predict``: the best answers to a question."""

from __future__ import annotations

import numpy as np

from penstock.arrow import read_column
from penstock.errors import UsageError, warn
from penstock.kernels.embed_rules import Side
from penstock.output import Output
from penstock.pipelines.embed.evaluation import VectorsJob
from penstock.pipelines.embed.options import PredictOptions
from penstock.pipelines.embed.report import PredictReport
from penstock.workers.embed.evaluation.predict import Predicted, PredictTask, predict
from penstock.workers.embed.warm import IDS


class PredictJob(VectorsJob[PredictReport]):
    """Ranks all nodes as answers to one question."""

    command = "penstock embed predict"
    what = "the best answers"
    options: PredictOptions

    def check(self) -> None:
        """Find the node and the relation of the query."""
        options = self.options
        if (options.head is None) == (options.tail is None):
            raise UsageError(
                "a prediction is of tails or of heads",
                expected="--head or --tail, one of them",
                got="both" if options.head is not None else "neither",
            )
        super().check()
        asked = options.head if options.head is not None else options.tail
        # Of a graph only its edges are needed, which are no answers.
        self.graph = None if options.known else self.open_graph()
        if self.graph is not None and self.graph.digest != self.run.graph_sha256:
            raise UsageError(
                f"{self.graph.path} is not the graph that {self.at} was trained on, so its edges "
                "cannot be left out",
                expected="the graph of the run",
                remedy="Say where that is with --graph, or list known answers, too: --known",
            )
        self.node = self._node(str(asked))
        self.relation = self._relation(options.relation)

    def _node(self, name: str) -> int:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.ids = read_column(self.at / IDS, "id").combine_chunks()
        found = pc.index(self.ids.cast(pa.string()), pa.scalar(name)).as_py()
        if found < 0:
            raise UsageError(
                f"{self.at} has no vector of {name!r}",
                expected=f"the id of a node, such as {self.ids[0].as_py()!r}",
            )
        return int(found)

    def _relation(self, name: str | None) -> int:
        names = self.run.relations
        if names is None:
            if name is not None:
                raise UsageError(
                    f"{self.at} was trained without relations", remedy="Leave --relation out"
                )
            return 0
        if name is None and len(names) == 1:
            return 0
        if name is None or name not in names:
            raise UsageError(
                "--relation is missing" if name is None else f"{self.at} has no relation {name!r}",
                expected=f"one of {len(names):,}, such as {', '.join(names[:10])}",
            )
        return names.index(name)

    def work(self, partial: Output) -> None:
        """Rank on one rank."""
        options, run = self.options, self.run
        task = PredictTask(
            run=self.at,
            training=run.training,
            relations=len(run.relations or ()),
            checkpoint=self.checkpoint,
            node=self.node,
            relation=self.relation,
            side=Side.TAIL if options.head is not None else Side.HEAD,
            top=min(options.top, run.nodes),
            graph=None if self.graph is None else self.graph.path,
        )
        with self.open_ranks(None, 1) as workers:
            if (problem := self.too_large()) is not None:
                raise problem
            self.found: Predicted = workers.ranks(predict, (task,), title="predict")[0]

    def report(self, seconds: float) -> PredictReport:
        """Return the answers, by the user's ids."""
        if self.found.unseen:
            asked = self.options.tail if self.options.head is None else self.options.head
            warn(f"{asked!r} is in no edge that {self.at} was trained on: its answers mean nothing")
        nodes = np.array([node for node, _ in self.found.best], np.int64)
        names = self.ids.take(nodes).to_pylist()
        return PredictReport(
            run=str(self.at),
            head=self.options.head,
            relation=self.options.relation,
            tail=self.options.tail,
            checkpoint=self.checkpoint,
            seconds=seconds,
            answers=[
                {"id": name, "score": score}
                for name, (_, score) in zip(names, self.found.best, strict=True)
            ],
        )
