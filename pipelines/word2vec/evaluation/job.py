"""One run of ``penstock word2vec evaluate``, in the process that was started."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.limits import available_memory, cores
from penstock.output import Output
from penstock.paths import shown
from penstock.pipelines.job import Job
from penstock.pipelines.job.plan import Need, Plan
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.evaluation import labels, words
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.pipelines.word2vec.evaluation.report import EvaluateReport
from penstock.progress import Progress
from penstock.sizes import need_memory, plural

_QUESTION = 32  # bytes of a line of four words, about


class EvaluateJob(Job[EvaluateReport]):
    """Compares vectors with every file that the options name."""

    command = "penstock word2vec evaluate"
    kind = ""
    options: EvaluateOptions

    def __init__(self, vectors: Vectors, options: EvaluateOptions, *, quiet: bool) -> None:
        super().__init__(vectors.path, options, quiet=quiet)
        self.vectors = vectors
        self.words = min(options.restrict, len(vectors))
        self.splits = len(options.shares) * options.repeats
        self.labels: labels.Labels | None = None
        self.result = EvaluateReport(str(vectors.path), len(vectors), vectors.dimension)

    def check(self) -> None:
        """Read the labels; raise where there is nothing to compare with, or too little memory."""
        options = self.options
        if not (options.pairs or options.analogies or options.labels):
            raise UsageError(
                "vectors are evaluated by something",
                expected="--pairs, --analogies or --labels",
                remedy="Name a file of judgements, or a graph with labels",
            )
        for path in (*options.pairs, *options.analogies):
            words.check_file(path)
        self.questions = sum(path.stat().st_size for path in options.analogies) // _QUESTION
        if options.labels is not None:
            self.labels = labels.read_labels(self.vectors, options.labels, options.shares)
        need_memory(
            self._memory(),
            f"comparing {len(self.vectors):,} vectors of {self.vectors.dimension}",
            remedy="Take a smaller --restrict"
            if self.labels is None
            else "Give fewer ids labels, and a column of classes, not one of values",
        )

    def plan(self) -> Plan:
        """Say what is compared with what."""
        steps = []
        for kind in ("pairs", "analogies"):
            if given := getattr(self.options, kind):
                files = plural(len(given), "file")
                steps.append((kind, f"of {files}, among the first {self.words:,} vectors"))
        if self.labels is not None:
            rows, classes = len(self.labels.rows), len(self.labels.classes)
            steps.append(("labels", f"{self.splits} splits of {rows:,} ids, {classes:,} classes"))
        return Plan(
            f"how good the vectors of {shown(self.vectors.path)} are",
            tuple(steps),
            Need(self._memory(), available_memory(), "available"),
        )

    def _memory(self) -> int:
        """Return the bytes that comparing takes, about, besides vectors that are not mapped."""
        options, dimension, needed = self.options, self.vectors.dimension, 0
        if options.pairs or options.analogies:
            by = {"by_pairs": bool(options.pairs), "by_analogies": bool(options.analogies)}
            needed = words.memory(self.words, dimension, **by)
        if self.labels is not None:
            at_once = min(cores(), options.repeats)
            needed = max(needed, self.labels.memory(dimension, at_once))
        return needed

    def work(self, partial: Output) -> None:
        """Compare, one file after the other."""
        options, found = self.options, self.result
        self.vectors.check_finite()
        if options.pairs or options.analogies:
            known = words.Words(
                self.vectors, case_sensitive=options.case_sensitive, restrict=self.words
            )
            found.pairs = [words.evaluate_pairs(known, path) for path in options.pairs]
            found.analogies = [words.evaluate_analogies(known, path) for path in options.analogies]
            del known  # of which labels have no need
        if self.labels is not None:
            with Progress(
                "classify", total=self.splits, unit="splits", quiet=self.quiet
            ) as progress:
                found.labels = labels.evaluate_labels(
                    self.vectors, self.labels, options, progress.advance
                )

    def report(self, seconds: float) -> EvaluateReport:
        """Return what was found."""
        self.result.seconds = seconds
        return self.result
