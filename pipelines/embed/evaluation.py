"""``penstock embed evaluate``: where the answers of edges rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.csr import id_dtype
from penstock.errors import CapacityError, InputError, MissingFile, PenstockError, UsageError, warn
from penstock.graph import Graph
from penstock.output import Output
from penstock.pipelines.embed.options import EvaluateOptions, GraphOptions
from penstock.pipelines.embed.planning import memory_to_rank
from penstock.pipelines.embed.report import EvaluateReport
from penstock.pipelines.embed.run import Run, checkpoint_name
from penstock.pipelines.job import R, RunJob
from penstock.pipelines.job.plan import Need, Plan
from penstock.sizes import plural
from penstock.workers.embed.evaluation.evaluate import (
    SHOWN,
    Evaluated,
    EvaluateTask,
    evaluate,
    unknown,
)
from penstock.workers.embed.source import BLOCK_BYTES
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.embed.warm import IDS

_EDGE = 3 * 8  # bytes of an edge that is read
_KNOWN = 40  # of a known answer, while all of them are sorted


class VectorsJob(RunJob[R]):
    """Reads the vectors of a run: what ``evaluate`` and ``predict`` share."""

    on_gpu = True
    kind = ""
    what: ClassVar[str]
    options: GraphOptions
    run: Run

    def check(self) -> None:
        """Open the run."""
        self.run = Run.load(self.at)
        self.checkpoint = checkpoint_name(self.at, self.options.checkpoint, self.run)

    def open_graph(self) -> Graph:
        """Open the graph of the run, or the one that is given."""
        return Graph.open(self.graph_path(self.run.graph, "Say where it is with --graph"))

    def memory(self) -> int:
        """Return the bytes that a worker needs, about, of a partition or a block of one."""
        found = Checkpoints(self.at / "checkpoints").load(self.checkpoint)
        return 2 * min(found.geometry.slot_bytes(1), BLOCK_BYTES) + 500_000_000

    def too_large(self) -> CapacityError | None:
        """Return the error where a worker has less memory than it takes, None where it fits.

        Of a GPU nothing is said: edges and known answers lie in the memory of the host.
        """
        has, needed = self.connected.capacity, self.memory()
        if has.on_gpu or needed <= has.memory:
            return None
        limit = has.limit_for(needed)
        what = f"{self.command.split()[-1]} with the vectors of {self.run.nodes:,} nodes"
        return has.too_small(what, needed, remedy=f"Give {limit or 'workers more memory'}")

    def plan(self) -> Plan:
        """Say what memory it takes, and what a worker has."""
        with self.open_ranks(None, 1, quiet=True):
            has = self.connected.capacity
        there = None if has.on_gpu else has.memory
        return Plan(
            self.what,
            (("rank", f"the {self.checkpoint} checkpoint of {self.at}, on one rank"),),
            Need(self.memory(), there, "" if has.on_gpu else f"on the {has.worker}"),
            problem=self.too_large(),
        )


class EvaluateJob(VectorsJob[EvaluateReport]):
    """Ranks the answers of edges among all nodes."""

    command = "penstock embed evaluate"
    what = "the ranks of edges"
    options: EvaluateOptions

    def check(self) -> None:
        """Find the edges to rank."""
        super().check()
        self.graph = self.open_graph()
        options, held = self.options, self.graph.manifest.heldout
        self.split = options.split or "test"
        if self.run.relations is not None and self.graph.manifest.relations is None:
            raise UsageError(
                f"{self.graph.path} has no relations, which {self.at} was trained on",
                expected="a graph whose edges have relations",
            )
        if options.triples is None and self.split != "train" and not held.get(self.split):
            found = ", ".join(f"{name} {count:,}" for name, count in held.items())
            raise UsageError(
                f"{self.graph.path} holds out no edges for {self.split}",
                expected=f"edges of the split {self.split}",
                got=found or "no edges held out",
                remedy="Hold some out with penstock etl --split-edges 0.9 0.05 0.05, or --valid "
                "and --test, or rank those of a file with --triples",
            )
        self.same = self.graph.digest == self.run.graph_sha256
        self.own = None
        if not self.same and options.graph is None:
            warn(
                f"{self.graph.path} has changed since {self.at} was trained: its edges are ranked "
                "by the ids of their nodes"
            )
        if options.filtered and not self.same:
            self.own = self._graph_of_the_run()
        self.triples: Array | None = None
        self.skipped = 0
        if options.triples is not None:
            self.triples = self._read(options.triples)

    def _graph_of_the_run(self) -> Graph | None:
        """Return the graph that was trained on, if it is still there as it was."""
        try:
            found = Graph.open(self.run.graph)
        except (PenstockError, OSError):
            return None
        return found if found.digest == self.run.graph_sha256 else None

    def _edges(self) -> int:
        """Return how many edges there are to rank, before a sample is drawn of them."""
        if self.triples is not None:
            return int(self.triples.shape[1])
        held = self.graph.manifest.heldout
        return int(self.graph.num_edges if self.split == "train" else held.get(self.split, 0))

    def memory(self) -> int:
        """Return the bytes that a worker needs, about: queries and known answers, too."""
        every_edge = self._edges()
        edges = min(self.options.sample or every_edge, every_edge)
        nodes, filtered = self.run.nodes, self.options.filtered
        needed = super().memory() + (every_edge - edges) * _EDGE  # before the sample is drawn
        needed += memory_to_rank(edges, self.run.training.dim, nodes, filtered=filtered)
        if filtered:  # every edge answers one query of a side at most
            graphs = [self.graph] if self.own is None else [self.graph, self.own]
            every = sum(g.num_edges + sum(g.manifest.heldout.values()) for g in graphs)
            needed += min(every, edges * nodes) * _KNOWN
        return needed

    def _read(self, path: Path) -> Array:
        """Return the edges of a file as numbers of the run."""
        import pyarrow as pa
        import pyarrow.compute as pc

        typed = self.run.relations is not None
        wide = 3 if typed else 2
        try:
            # Ids may hold what else Python takes for the end of a line.
            text = path.read_bytes().decode("utf-8-sig")
        except FileNotFoundError as error:
            raise MissingFile(f"there is no file {path}") from error
        except (UnicodeDecodeError, IsADirectoryError) as error:
            raise InputError(
                f"{path} is no text file of edges", expected="UTF-8", got=str(error)
            ) from error
        lines = text.removesuffix("\n").split("\n") if text else []
        rows = [line.removesuffix("\r").split("\t") for line in lines]
        for number, row in enumerate(rows, 1):
            if len(row) != wide:
                raise InputError(
                    f"{path}, line {number} is no edge",
                    expected="head, relation and tail" if typed else "head and tail",
                    got=plural(len(row), "column"),
                    remedy="Separate columns by tabs",
                )
        ids = read_column(self.at / IDS, "id").combine_chunks().cast(pa.string())

        def numbers(column: list[str], values: Any) -> Array:
            found = pc.index_in(pa.array(column, pa.string()), value_set=values)
            return np.asarray(pc.fill_null(found.cast(pa.int64()), -1))

        columns = [[row[i] for row in rows] for i in range(wide)]
        heads, tails = numbers(columns[0], ids), numbers(columns[-1], ids)
        relations = np.zeros(len(rows), np.int64)
        if typed:
            relations = numbers(columns[1], pa.array(self.run.relations, pa.string()))
        good = (heads >= 0) & (tails >= 0) & (relations >= 0)
        bad = int(np.count_nonzero(~good))
        if bad and self.options.unknown == "error":
            ends = ((columns[0], heads), (columns[-1], tails))
            strange = dict.fromkeys(
                name
                for names, found in ends
                for name, at in zip(names, found, strict=True)
                if at < 0
            )
            lost = dict.fromkeys(
                name for name, at in zip(columns[1], relations, strict=True) if typed and at < 0
            )
            raise unknown(
                bad, len(strange), list(strange)[:SHOWN], len(lost), list(lost)[:SHOWN], str(path)
            )
        if bad and not good.any():
            raise UsageError(
                f"no edge of {path} is known to {self.at}",
                expected="an edge of nodes and relations that it was trained on",
                got=f"{plural(bad, 'edge')}, which --unknown skip leaves out",
            )
        self.skipped = bad
        # They go to the rank with the task, as narrow as they may be.
        dtype = id_dtype(max(self.run.nodes, len(self.run.relations or ())))
        return np.stack([heads, relations, tails]).astype(dtype)[:, good]

    def work(self, partial: Output) -> None:
        """Rank on one rank."""
        options, run, triples = self.options, self.run, self.triples
        task = EvaluateTask(
            graph=self.graph.path,
            run=self.at,
            training=run.training,
            relations=run.relations,
            checkpoint=self.checkpoint,
            split=None if triples is not None else self.split,
            triples=triples,
            same=self.same,
            filtered=options.filtered,
            candidates=options.candidates,
            sample=options.sample,
            skip_unknown=options.unknown == "skip",
            seed=options.seed,
            own=None if self.own is None else self.own.path,
        )
        with self.open_ranks(None, 1) as workers:
            if (problem := self.too_large()) is not None:
                raise problem
            self.found: Evaluated = workers.ranks(evaluate, (task,), title="evaluate")[0]

    def report(self, seconds: float) -> EvaluateReport:
        """Return the scores."""
        found, options = self.found, self.options
        split = self.split if options.triples is None else str(options.triples)
        filters, unfiltered = None, None
        if options.filtered:
            filters = [str(graph.path) for graph in (self.graph, self.own) if graph is not None]
            if not self.same and self.own is None:
                unfiltered = self.run.graph
        return EvaluateReport(
            run=str(self.at),
            graph=str(self.graph.path),
            split=split,
            filtered=options.filtered,
            filters=filters,
            unfiltered=unfiltered,
            checkpoint=self.checkpoint,
            edges=found.edges,
            skipped=found.skipped + self.skipped,
            candidates=found.candidates,
            seconds=seconds,
            scores=found.scores,
            tail=found.sides.get("tail"),
            head=found.sides.get("head"),
            unseen=found.unseen,
        )
