"""Options of ``penstock generate``: one set per kind of graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from penstock.options import options
from penstock.sizes import checked_size

LARGEST = 2**31 - 1  # ids are drawn as 32-bit numbers

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Degree = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]


def _if_given(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    return lambda text: None if text is None else check(text)


def _as_text(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _checked_range(text: str) -> str:
    weight_range(text)
    return text


def weight_range(text: str) -> tuple[float, float]:
    """Return the two ends of ``"1,5"``."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("two numbers such as 1,5") from None
    if not 0 <= low < high < 1e30:
        raise ValueError("two numbers, 0 <= lowest < highest")
    return low, high


WeightRange = Annotated[
    str | None, BeforeValidator(_as_text), AfterValidator(_if_given(_checked_range))
]
Size = Annotated[str | None, AfterValidator(_if_given(checked_size))]


@options
class Common:
    """Options of every kind of graph."""

    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """random seed: the same bytes on any number of threads and with any memory"""
    memory: Size = None
    """memory limit, such as 4GB (default: half of the available memory)"""


@options
class RmatOptions(Common):
    """An R-MAT graph: skewed degrees, small diameter, as in Graph500."""

    scale: Annotated[int, Field(ge=1, le=31)] = 16
    """draw ends among 2**scale nodes"""
    edge_factor: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 16
    """edges drawn, as a multiple of 2**scale"""
    a: Share = 0.57
    """probability of the upper left quadrant"""
    b: Share = 0.19
    """probability of the upper right quadrant"""
    c: Share = 0.19
    """probability of the lower left quadrant; the lower right gets the rest"""
    undirected: bool = True
    """store every edge in both directions"""
    deduplicate: bool = True
    """keep one of several equal edges"""
    keep_loops: bool = False
    """keep edges from a node to itself"""
    keep_isolated: bool = False
    """keep nodes without an edge; else the others are numbered without gaps"""
    scramble: bool = True
    """shuffle node ids, so that degree does not follow id"""
    weights: WeightRange = None
    """weight each edge uniformly in a range, such as 1,5"""
    relations: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """give each edge one of this many relations at random"""
    labels: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """give each node one of this many classes"""
    label_by: Literal["random", "degree"] = "random"
    """draw a node's class at random, or take the binary logarithm of its degree"""
    format: Literal["graph", "parquet"] = "graph"
    """graph: a graph directory; parquet: the edges as drawn, a dataset for etl to read"""

    @model_validator(mode="after")
    def _probabilities(self) -> RmatOptions:
        if self.a + self.b + self.c > 1 - 2**-16:
            total = self.a + self.b + self.c
            raise ValueError(f"a, b and c that add up to less than 1 (they make {total:g})")
        return self


@options
class SbmOptions(Common):
    """A stochastic block model: dense blocks, with features and labels to learn."""

    nodes: Annotated[int, Field(ge=2, le=LARGEST)] = 10_000
    """number of nodes"""
    blocks: Annotated[int, Field(ge=1, le=1 << 20)] = 10
    """number of blocks of equal size; a node's block is its label"""
    degree_inside: Degree = 12
    """average number of neighbours in the node's own block"""
    degree_outside: Degree = 4
    """average number of neighbours in other blocks"""
    p_inside: Share | None = None
    """probability of an edge within a block, instead of --degree-inside"""
    p_outside: Share | None = None
    """probability of an edge between blocks, instead of --degree-outside"""
    features: Literal["dense", "sparse", "none"] = "dense"
    """dense: a centre per block plus noise; sparse: a bag of words, some of them the block's own"""
    width: Annotated[int, Field(ge=1, le=1 << 24)] = 64
    """number of features"""
    noise: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 4
    """dense: standard deviation of the noise, relative to that of the centres, 1"""
    words: Annotated[int, Field(ge=1, le=1 << 16)] = 16
    """sparse: words drawn for each node"""
    topic: Share = 0.2
    """sparse: probability that a word is one of the block's own"""
    train: Share = 0.6
    """share of the nodes in the training split"""
    valid: Share = 0.2
    """share of the nodes in the validation split"""
    test: Share = 0.2
    """share of the nodes in the test split"""

    @model_validator(mode="after")
    def _agree(self) -> SbmOptions:
        if self.blocks > self.nodes:
            raise ValueError(f"at most {self.nodes} blocks, the number of nodes")
        if self.train + self.valid + self.test > 1 + 1e-9:
            raise ValueError("train, valid and test that add up to at most 1")
        if self.features == "sparse" and self.width < self.blocks:
            raise ValueError(f"a width of at least the number of blocks ({self.blocks})")
        return self


@options
class KnowledgeOptions(Common):
    """A knowledge graph with a planted rule: tails can be predicted from head and relation."""

    entities: Annotated[int, Field(ge=2, le=LARGEST)] = 10_000
    """number of entities"""
    relations: Annotated[int, Field(ge=1, le=1 << 20)] = 20
    """number of relations"""
    triples: Annotated[int, Field(ge=1, le=1 << 40)] = 200_000
    """triples drawn; repeated ones are dropped"""
    cluster_size: Count = 16
    """entities in a cluster: a relation leads from one cluster to one other"""
    noise: Share = 0.1
    """share of the triples whose tail is any entity"""
    entity_skew: Annotated[float, Field(ge=0, lt=4, allow_inf_nan=False)] = 0.8
    """Zipf exponent of how often an entity is a head"""
    relation_skew: Annotated[float, Field(ge=0, lt=4, allow_inf_nan=False)] = 0.8
    """Zipf exponent of how often a relation occurs"""
    valid: Share = 0.05
    """share of the triples in the validation split"""
    test: Share = 0.05
    """share of the triples in the test split"""

    @model_validator(mode="after")
    def _agree(self) -> KnowledgeOptions:
        if self.valid + self.test >= 1:
            raise ValueError("valid and test that add up to less than 1")
        return self


@options
class ZooOptions(Common):
    """Very many small graphs, random and R-MAT, of the sizes of SwarmGraph's table 3."""

    graphs: Annotated[int, Field(ge=1, le=LARGEST)] = 1000
    """number of graphs"""
    least_degree: Annotated[int, Field(ge=1, le=31)] = 8
    """least average degree of a graph"""
    most_degree: Annotated[int, Field(ge=1, le=31)] = 16
    """largest average degree of a graph"""

    @model_validator(mode="after")
    def _agree(self) -> ZooOptions:
        if self.least_degree > self.most_degree:
            raise ValueError("--least-degree at most --most-degree")
        return self
