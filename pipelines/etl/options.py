"""Options of ``penstock etl``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.moments import Moment
from penstock.options import (
    ClientInput,
    ClientPath,
    Rules,
    check_fractions,
    flag,
    headings,
    options,
    refuse_ignored,
)

Format = Literal[
    "auto",
    "parquet",
    "arrow",
    "csv",
    "tsv",
    "edgelist",
    "npz",
    "triples",
    "zoo",
    "json",
    "edgelists",
    "tu",
]
Merge = Literal["sum", "max", "min", "first", "keep"]


# Options that would be ignored: their names, when, and a test of the options.
_IGNORED: Rules = (
    (
        ("since", "until", "merge_times"),
        "without --time",
        lambda o: o.time is None and not o.changes,  # they take the base's
    ),
    (("window",), "without --until, at which it ends", lambda o: o.until is None),
    (("since",), "with --window", lambda o: o.window is not None),
    (("merge_times",), "with --duplicates keep", lambda o: o.duplicates == "keep"),
    (
        (
            "label",
            "split",
            "feature_columns",
            "category_columns",
            "features_as",
            "standardise",
        ),
        "without --nodes",
        lambda o: o.nodes is None,
    ),
    (
        ("node_id", "node_type"),
        "without --nodes and --remove-nodes",
        lambda o: o.nodes is None and o.remove_nodes is None,
    ),
    (
        ("node_type",),
        "without --source-type and --target-type",
        lambda o: o.source_type is None and not o.changes,
    ),
    (
        ("feature_columns", "category_columns", "features_as"),
        "with --features",
        lambda o: o.features is not None,
    ),
    (
        ("standardise",),
        "without --feature-columns",
        lambda o: not o.feature_columns and o.features_as is None,
    ),
    (
        ("unknown_nodes",),
        "without --nodes or --features",
        lambda o: o.nodes is None and o.features is None,
    ),
    (("graph_id",), "unless a zoo is read", lambda o: o.format not in ("auto", "zoo", "tu")),
    (("valid", "test"), "with --split-edges", lambda o: o.split_edges is not None),
    (
        ("merge_times",),
        "with --split-edges-by time, which each edge at its own time needs",
        lambda o: o.split_edges_by == "time",
    ),
    (("split_edges_by",), "without --split-edges", lambda o: o.split_edges is None),
    (("split_nodes",), "with --split", lambda o: o.split is not None),
    (("add", "remove", "remove_nodes"), "without --base", lambda o: o.base is None),
    (
        ("strict",),
        "without --remove and --remove-nodes",
        lambda o: not o.remove and o.remove_nodes is None,
    ),
)
IGNORED_IN_CHANGES: Rules = (
    (
        (
            "min_degree",
            "largest_component",
            "drop_isolated",
            "relabel",
            "split_edges",
            "valid",
            "test",
            "split_nodes",
            "seed",
            "features",
            "label_kind",
            "feature_columns",
            "category_columns",
            "standardise",
            "features_as",
            "missing_features",
        ),
        "without EDGES: changes follow the base",
        lambda o: True,
    ),
    (
        ("unknown_nodes",),
        "without EDGES: edges of the base are not read",
        lambda o: o.unknown_nodes == "drop",
    ),
)
IGNORED_IN_TABLES: Rules = (
    (("header", "delimiter"), "without a text file", lambda o, text: not text),
    (("label_missing", "label_kind"), "without --label", lambda o, _: o.label is None),
    (
        ("missing_features",),
        "without --features or --feature-columns",
        lambda o, text: (
            not (o.features or o.feature_columns or o.category_columns or o.features_as)
        ),
    ),
)
# In a zoo, graphs are split by the user's own table and have components of their own; the nodes of
# a graph stay together, and only TU folders have data of nodes.
IGNORED_IN_ZOOS: Rules = (
    (
        (
            "largest_component",
            "relabel",
            "split_edges",
            "split_nodes",
            "valid",
            "test",
            "nodes",
            "features",
            "source_type",
            "unknown_nodes",
        ),
        "in a zoo of graphs",
        lambda o: True,
    ),
)


# The names of a TU folder's files decide their contents; they are matched by row number.
IGNORED_IN_TU: Rules = (
    (
        ("source", "target", "graph_id", "header", "delimiter", "id_type", "on_bad_rows"),
        "with a TU folder",
        lambda o: True,
    ),
    (("weight",), "with a TU folder, except none", lambda o: o.weight != "none"),
    (("relation",), "with a TU folder, except none", lambda o: o.relation != "none"),
    (("time",), "with a TU folder, except none", lambda o: o.time != "none"),
    (("label_kind",), "with a TU folder, except value", lambda o: o.label_kind == "multi"),
)


@options
@headings(
    format="Reading",
    directed="Edges",
    base="Yesterday's graph",
    min_degree="Filtering and numbering of nodes",
    split_edges="Splits",
    nodes="Node table and features",
    on_bad_rows="Reading",
)
class EtlOptions:
    """How edges become a graph. docs/etl.md describes the steps and their order."""

    format: Format = "auto"
    """format of the edges: parquet, arrow (IPC files), csv, tsv, edgelist (text with # comments),
    npz (SciPy CSR), triples (head, relation, tail); of many small graphs zoo (a table with
    graph_id, source, target), json (one graph per line), edgelists (one graph per text file),
    tu (a TU folder); auto decides by the file's name"""
    source: str | None = None
    """column of the edge's source: a name, or a number from 0 [default: src, source, head, ...]"""
    target: str | None = None
    """column of the edge's target [default: dst, target, tail, ...]"""
    weight: str | None = None
    """column of the edge's weight; none: no weights [default: weight, if there is one]"""
    relation: str | None = None
    """column of the edge's relation (type); none: no types, not even of triples and TU folders
    [default: relation, if there is one]"""
    time: str | None = None
    """column of the edge's time: integers, floats or timestamps; the graph keeps it, and equal
    edges at two times are two edges"""
    source_type: str | None = None
    """type of the edges' sources, or column:NAME for a column of types: nodes of two types may
    have the same id; the graph names them TYPE:ID"""
    target_type: str | None = None
    """type of the edges' targets, or column:NAME"""
    graph_id: str | None = None
    """column of the graph an edge belongs to, which makes a zoo [default of a zoo: graph_id]"""
    header: Literal["auto", "yes", "no"] = "auto"
    """whether text files begin with a line of column names"""
    delimiter: str | None = None
    """what separates columns in text files [default: a comma in csv, a tab in tsv and triples]"""
    id_type: Literal["auto", "int64", "uint64", "string"] = "auto"
    """type of the ids; string also applies to ids of graphs; auto decides by the first rows"""

    directed: Annotated[bool | None, Parameter(negative="--undirected")] = None
    """keep the edges' direction, or store every edge both ways [default: triples, and tables with a
    column of relations, are directed; other edges, zoos and TU folders are undirected]"""
    self_loops: Literal["drop", "keep"] | None = None
    """edges from a node to itself [default: keep if edges have relations, else drop]"""
    duplicates: Merge = "sum"
    """equal edges (of equal time) become one with the sum, the maximum, the minimum or the first of
    the weights, or are kept"""
    both_directions: Literal["add", "once"] | None = None
    """undirected: an edge listed in both directions is two duplicates (add), or one edge in the
    direction listed first (once) [default: once in a symmetric matrix, else add]"""
    merge_times: bool = False
    """edges that differ only in time are duplicates too: one edge, with the latest time
    (--duplicates first: the time of the first)"""
    since: Moment | None = None
    """drop edges before this time: a number, or for timestamps a date such as 2026-11-20"""
    until: Moment | None = None
    """drop edges at or after this time"""
    window: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    """drop edges older than this before --until: 30d, 12h, or a number if times are numbers; with
    --add, also those of the base"""

    base: ClientPath | None = None
    """yesterday's graph, of the same kind: its nodes keep their internal ids, new ones get free
    ids, and files that come out the same are links to its files"""
    add: tuple[ClientInput, ...] = ()
    """with --base, instead of EDGES: files of edges that are added to it; may be repeated"""
    remove: tuple[ClientInput, ...] = ()
    """with --base, instead of EDGES: files of edges that are removed from it, before others are
    added; may be repeated"""
    remove_nodes: ClientInput | None = None
    """with --base, instead of EDGES: a table of ids (--node-id) of nodes that are removed with all
    their edges: parquet, csv or tsv. Nodes with the highest internal ids get theirs"""
    strict: bool = False
    """stop if an edge or a node to remove does not exist, instead of counting it"""

    min_degree: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """drop nodes with fewer edges than this (once, not repeatedly)"""
    largest_component: bool = False
    """keep only the largest connected component"""
    drop_isolated: bool = False
    """drop nodes without any edge"""
    relabel: Literal["sorted", "degree", "random"] = "sorted"
    """internal ids follow the user's ids in order, falling degree, or a random permutation"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """seed of the permutation and of the splits"""

    split_edges: tuple[float, float, float] | None = None
    """fractions of edges for train, valid and test; valid and test are held out in heldout/"""
    split_edges_by: Literal["draw", "time"] = "draw"
    """draw: each edge draws its split by --seed; time: the oldest edges train, the newest test"""
    valid: ClientInput | None = None
    """a file of edges to hold out as heldout/valid, in the format of the edges"""
    test: ClientInput | None = None
    """a file of edges to hold out as heldout/test"""
    split_nodes: tuple[float, float, float] | None = None
    """fractions of nodes for train, valid and test; with --label, of nodes that have one. --seed
    and a node's id decide its split, whatever other nodes exist; sizes are approximate"""

    nodes: ClientInput | None = None
    """table of nodes: parquet, csv or tsv; nodes without edges come from here. With --base and
    without EDGES: rows of new nodes, and of those that have new values"""
    node_id: str | None = None
    """column of the node table with the ids [default: id]"""
    node_type: str | None = None
    """type of the nodes of the node table, or column:NAME [default: column:type]"""
    label: str | None = None
    """column of the node table with the label: classes, numbers, or lists of classes; losses and
    scores ignore nodes without one"""
    label_kind: Literal["auto", "class", "multi", "value"] = "auto"
    """class, multi (several classes per node), or value (for regression); auto: floats are
    values, unless some are missing and the rest are at most 1,000 different whole numbers"""
    label_missing: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    """a value that means no label, such as -1, besides empty and NaN"""
    split: str | None = None
    """column of the node table with train, valid or test"""
    feature_columns: tuple[str, ...] = ()
    """columns of the node table that are features: numbers, booleans, categories (one feature per
    category), dates (days, month and weekday), or one column of lists; x* takes all that begin
    with x; may be repeated"""
    category_columns: tuple[str, ...] = ()
    """columns of the node table that are features as categories, even if they hold numbers"""
    standardise: bool = False
    """scale features that are numbers to a mean of 0 and a standard deviation of 1 over all rows
    of the node table that have a value"""
    features_as: ClientPath | None = None
    """another graph: use its feature columns, categories, means and deviations, so that both have
    the same features; a new category is 0 in all of them. The three options above may stay, but
    must not ask for columns that it lacks"""
    features: ClientPath | None = None
    """features as .npy (dense) or .npz (SciPy CSR), one row per row of the node table"""
    missing_features: Literal["error", "zero", "mean"] = "error"
    """features that are NaN, null or empty: stop, or fill numbers and booleans with 0 or with the
    mean of the others, and all features of a category or date with 0"""
    unknown_nodes: Literal["error", "add", "drop"] = "error"
    """edges to nodes that are not in the node table: stop, add the nodes, or drop the edges"""

    on_bad_rows: Literal["error", "skip"] = "error"
    """stop at the first row that cannot be used, or skip and count it"""
    scratch: ClientPath | None = None
    """folder for intermediate files, which every worker must see [default: next to the output]"""

    @property
    def changes(self) -> bool:
        """Whether edges or nodes are added to or removed from the base."""
        return bool(self.add or self.remove or self.remove_nodes)

    def __post_init__(self) -> None:
        for name in ("split_edges", "split_nodes"):
            if (fractions := getattr(self, name)) is not None:
                check_fractions(name, fractions)
        refuse_ignored(self, _IGNORED)
        if self.split_edges_by == "time" and self.time is None:
            raise UsageError("--split-edges-by time needs the column of times: --time")
        if (self.source_type is None) != (self.target_type is None):
            raise UsageError("--source-type and --target-type go together")
        for name in ("source_type", "target_type", "node_type"):
            given = getattr(self, name)
            if given is not None and type_column(given) is None and (not given or ":" in given):
                raise UsageError(
                    f"{flag(name)} is a type without a colon, or column:NAME", got=repr(given)
                )


def asked_columns(options: EtlOptions) -> list[str]:
    """Return the columns of edges that options name."""
    named = [options.source, options.target, options.weight, options.relation, options.time]
    types = [type_column(options.source_type), type_column(options.target_type)]
    return [name for name in (*named, options.graph_id, *types) if name is not None]


def type_column(given: str | None) -> str | None:
    """Return the column that an option of types names; None if it is a type itself."""
    known, colon, name = (given or "").partition(":")
    return name if known == "column" and colon else None
