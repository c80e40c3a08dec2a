"""The options of ``penstock embed``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ArgsKwargs

from penstock.documents import read_yaml
from penstock.errors import UsageError
from penstock.options import (
    ClientPath,
    Rules,
    bad_option,
    given_in,
    headings,
    no_option,
    options,
    refuse_ignored,
    with_underscores,
)
from penstock.paths import client_path
from penstock.workers.embed.spec import Training

Count = Annotated[int, Field(ge=1)]
ALL, BY_RELATION = "all", "by-relation"  # values of --candidates
_OF_GRAPH = ("type", "label", BY_RELATION)  # candidates that need a graph
# Options that would be ignored.
_IGNORED_IN_TRAINING: Rules = (
    (
        ("order", "buffer", "prefetch", "storage"),
        "with --partitions 1, which is in memory",
        lambda o: o.partitions == 1,
    ),
    (
        ("candidates",),
        "with --negatives all, which all relations share",
        lambda o: o.negatives == "all" and o.candidates == BY_RELATION,
    ),
    (
        ("candidates",),
        "with --optimizer adam, whose corrections count whole batches",
        lambda o: o.optimizer == "adam" and o.candidates == BY_RELATION,
    ),
)
_IGNORED_IN_RANKS: Rules = (
    (("at",), "with --sample, which leaves answers of a question out", lambda o: o.sample),
    (("split",), "with --triples, whose edges are ranked", lambda o: o.triples is not None),
    (
        ("seed",),
        "without --sample or a number of --candidates",
        lambda o: not (isinstance(o.candidates, int) or o.sample),
    ),
    (
        ("unknown",),
        "without --triples or another --graph: the run has all nodes of its own",
        lambda o: o.triples is None and o.graph is None,
    ),
)
_IGNORED_IN_ANSWERS: Rules = (
    (
        ("graph",),
        "with --known, which needs no graph",
        lambda o: o.known and (o.candidates or "").partition(":")[0] not in _OF_GRAPH,
    ),
)
_IGNORED_IN_MANY: Rules = (
    *_IGNORED_IN_ANSWERS,
    (("side",), "with --queries, whose rows determine it", lambda o: o.queries is not None),
    (("unknown", "new"), "without --queries", lambda o: o.queries is None),
)


def _of_candidates(value: Any) -> Any:
    """Return a number as it is, and the path of a file absolute, like other paths."""
    if not isinstance(value, str | Path) or str(value) in (ALL, BY_RELATION):
        return value
    text = str(value)
    if text.partition(":")[0] in ("type", "label"):
        return text
    return int(text) if text.isdecimal() else str(client_path(text))


Candidates = Annotated[str, BeforeValidator(_of_candidates)]


def read_recipe(path: Path) -> dict[str, Any]:
    """Return the options of a recipe, unchecked."""
    declared = read_yaml(path, "recipe")
    if not isinstance(declared, dict) or not all(isinstance(name, str) for name in declared):
        raise UsageError(
            f"{path} is not a recipe", expected="options and their values, as dim: 100"
        )
    found = with_underscores(declared, path)
    names = Training.__dataclass_fields__
    strange = [name for name in found if name not in names]
    if strange:
        raise no_option(strange[0], names, owner=f"{path}: a recipe")
    return found


@options
@headings(
    model="Model",
    loss="Training",
    validate_every="Validation and checkpoints",
    partitions="Out of core",
    recipe="Model",
    init="Validation and checkpoints",
    parts="Training",
)
class EmbedOptions(Training):
    """Options of ``penstock embed train``."""

    recipe: ClientPath | None = None
    """a YAML file of options of the model and its training; those given explicitly win"""
    init: ClientPath | None = None
    """begin with the vectors of another run: nodes and relations with the same ids keep theirs,
    with the optimizer's state; new nodes begin with what their edges predict, others at random"""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """train only edges of nodes that are new, or whose edges differ from those that --init was
    trained on, and of this share of the other nodes; without --init all are new [default: all]"""
    shrink: Annotated[float, Field(gt=0, le=1)] = 1.0
    """multiply the vectors of --init, if there is one, by this: they forget edges that are gone,
    and an epoch over all edges fits the others again"""
    candidates: Candidates | None = None
    """nodes to draw negatives from and to rank answers among: type:NAME, label:NAME, a file of
    ids, or by-relation: nodes of the types that edges of the relation lead to [default: all
    nodes]"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """ranks that train together, each with a share of the nodes in its memory [default: 1]"""

    @model_validator(mode="wrap")
    @classmethod
    def _with_recipe(cls, given: Any, make: Any) -> Any:
        """Add options of the recipe that the caller did not give.

        given  the keyword arguments, or a dict of the options of the command line
        """
        values = given.kwargs if isinstance(given, ArgsKwargs) else given
        if not isinstance(values, dict) or not isinstance(values.get("recipe"), str | Path):
            return make(given)
        path = client_path(values["recipe"])
        declared = read_recipe(path)

        def checked(values: dict[str, Any]) -> Any:
            try:
                return make(values)
            except ValidationError as error:
                raise bad_option(error) from None

        with given_in(path):
            return checked({**declared, **values})

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_ignored(self, _IGNORED_IN_TRAINING)
        if self.shrink < 1 and self.share is not None:
            raise UsageError(
                "--shrink changes the vectors of all nodes, and --share trains only some of them",
                remedy="Leave one of them out",
            )
        blocks, partitions = 2 * self.ranks, self.partitions or 1
        if self.ranks > 1 and partitions > 1 and partitions % blocks:
            raise UsageError(
                f"{partitions} partitions cannot be distributed over {self.ranks} ranks, "
                "two blocks each",
                expected=f"a multiple of {blocks}",
                got=f"--partitions {partitions}",
                remedy=f"Take --partitions {-(-partitions // blocks) * blocks}",
            )

    @property
    def ranks(self) -> int:
        """On how many ranks."""
        return self.parts or 1

    @property
    def training(self) -> Training:
        """The options that ranks get."""
        return Training(**{name: getattr(self, name) for name in Training.__dataclass_fields__})


@options
class VectorOptions:
    """The checkpoint to read."""

    checkpoint: Literal["best", "last"] = "best"
    """vectors with the best validation MRR, or of the last checkpoint; without validation both are
    the last"""


@options
class GraphOptions(VectorOptions):
    """The checkpoint to read, and the path of the graph."""

    graph: ClientPath | None = None
    """path of the graph, if it has moved; evaluate also takes another graph [default: the graph of
    the run]"""


@options
class EvaluateOptions(GraphOptions):
    """Options of ``penstock embed evaluate``."""

    split: Literal["train", "valid", "test"] | None = None
    """split of the edges to rank [default: test]"""
    triples: ClientPath | None = None
    """rank the edges of this file instead: one per line, head, relation and tail separated by tabs
    (head and tail if the graph has no relations)"""
    filtered: Annotated[bool, Parameter(negative="")] = False
    """leave other true answers (of all splits) out of the candidates"""
    candidates: Annotated[Count | str | None, BeforeValidator(_of_candidates)] = None
    """rank among these nodes and the answer: a number of nodes, drawn at random; type:NAME;
    label:NAME; a file of ids; by-relation: nodes that edges of the relation lead to, or if nodes
    have types, all nodes of these types; or all [default: as the run was trained]"""
    sample: Count | None = None
    """evaluate this many edges, drawn at random [default: all]"""
    at: Annotated[int, Field(ge=1)] = 10
    """length of the lists of best answers whose recall, precision and NDCG are reported"""
    by_relation: Annotated[bool, Parameter(negative="")] = False
    """also report scores by relation and by kind of relation: 1-1, 1-N, N-1, N-N"""
    unknown: Literal["error", "skip"] = "error"
    """what to do with edges of --triples or of another --graph if the run does not have their nodes
    or relation"""
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 0
    """seed of --candidates and --sample"""
    parts: Annotated[Count | None, Parameter(alias="-k")] = None
    """ranks that share the edges; scores do not depend on it [default: 1]"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED_IN_RANKS)


def _as_text(given: Any) -> Any:
    """Return an id as text: answers may have it as a number."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    return str(given) if whole else given


Id = Annotated[str, BeforeValidator(_as_text)]


@options
class PredictOptions(GraphOptions):
    """Options of ``penstock embed predict``."""

    head: Id | None = None
    """id of the head: predict tails"""
    tail: Id | None = None
    """id of the tail: predict heads"""
    relation: str | None = None
    """name of the relation"""
    top: Annotated[Count, Parameter(alias="-k")] = 10
    """how many answers"""
    known: bool = False
    """list known answers, too: those that are edges of the graph"""
    candidates: Candidates | None = None
    """nodes that may be answers: type:NAME, label:NAME, a file of ids, by-relation, or all
    [default: as the run was trained]"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED_IN_ANSWERS)


@options
class AnswerOptions(GraphOptions):
    """Options of ``penstock embed answer``."""

    queries: ClientPath | None = None
    """a Parquet, Arrow IPC, CSV or TSV file with the columns head, relation and tail: each row asks
    for the one that is empty [default: ask for every node]"""
    side: Literal["tail", "head"] | None = None
    """without --queries: which end of an edge to ask for [default: tail]"""
    relation: str | None = None
    """name of the relation, if --queries has no column of relations"""
    top: Annotated[Count, Parameter(alias="-k")] = 10
    """how many answers to each question"""
    known: bool = False
    """list known answers, too: those that are edges of the graph"""
    candidates: Candidates | None = None
    """as for embed predict; relations are not limited"""
    new: ClientPath | None = None
    """a table of edges (head, relation, tail) between new nodes and nodes of the run, so that
    --queries may ask about new nodes: a new node gets the mean vector that its edges predict (not
    with transe and rotate)"""
    unknown: Literal["error", "skip"] = "error"
    """what to do with questions if the run does not have their node or relation, and with edges of
    --new that lead to no node of the run or have an unknown relation"""

    def __post_init__(self) -> None:
        refuse_ignored(self, _IGNORED_IN_MANY)


@options
class ExportOptions(VectorOptions):
    """Options of ``penstock embed export``."""

    relations: Annotated[bool, Parameter(negative="")] = False
    """export the vectors of relations instead of nodes; NAME_inverse is the inverse of NAME, with
    which heads are scored"""
