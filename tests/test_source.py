"""What CONTRIBUTING asks of the source, where it can be counted: words, types, sizes of folders."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = ("penstock", "kernels", "partition", "workers", "cluster", "pipelines")

# What was said before the field's own word took its place; see the glossary in CONTRIBUTING.
REPLACED = {
    r"turned round": "transposed",
    r"\blet go of\b": "release",
    r"can be told": "options, predicted",
    r"(kept|values) for the way back": "saved activations",
    r"on (the|their) way back": "in the backward pass",
    r"how often all nodes are looked at": "number of epochs",
    r"what is made small": "loss function",
    r"how (the )?weights move": "optimizer",
    r"pulled to (0|zero)": "L2 penalty",
    r"(rows are asked for ahead|asked for before they are read)": "prefetched",
    r"waited in vain": "timed out",
    r"(workforce|workplace|surroundings)": "thread_pool, the frame, context",
    r"\bbeside\b": "next to, during, compared with",
    r"\banew\b": "again, from the start",
    r"\bon cores\b": "on CPUs",
    r"how gradients update": "optimizer",
    r"to (choose|judge) a model by": "validation split, test split",
}
# A folder may hold this many modules; these are lists of nouns, one module each.
MODULES = 16
LISTS = {"kernels", "kernels/naive", "kernels/cpu", "kernels/cuda", "penstock"}


def sources(root: Path, *endings: str) -> Iterator[Path]:
    for folder in CODE:
        for ending in endings:
            yield from (root / folder).rglob(f"*{ending}")


def replaced_words(text: str) -> list[str]:
    # A sentence may go on in the next line, and a name is made of words.
    text = " ".join(re.split(r"[\s_]+", text))
    return [f"{old}: say {new}" for old, new in REPLACED.items() if re.search(old, text, re.I)]


def named_files(text: str) -> set[str]:
    """Return the Python files that a text names, as it names them."""
    return set(re.findall(r"(?<![\w/.<*-])(?:\w+/)*[a-z_]\w*\.py\b", text))


def untyped(source: str) -> list[str]:
    """Return the parameters that are a client, an array or our communicator, without such a type.

    One rank is a gang of one: what takes a communicator takes that of a single rank, too.
    """
    wrong = {
        "client": lambda kind: "Any" in kind.split(" | "),
        "array": lambda kind: "Any" in kind.split(" | "),
        "comm": lambda kind: kind != "AnyCommunicator",
    }
    return [
        f"{node.name}({one.arg}: {kind})"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if one.arg in wrong and wrong[one.arg](kind := ast.unparse(one.annotation or ast.Name("")))
    ]


def badly_ended(text: str) -> bool:
    """Return whether a text does not end with one newline, or has blanks at the end of a line."""
    return (
        not re.fullmatch(r"(.*\S)?\n", text, re.S) or re.search(r"[ \t]$", text, re.M) is not None
    )


def test_the_fields_own_words(root):
    files = [
        *sources(root, ".py", ".cu", ".cuh"),
        *(root / "benchmarks").rglob("*.py"),
        *(root / "benchmarks").rglob("*.md"),
        *(root / "docs").glob("*.md"),
        *root.glob("*.md"),
    ]
    assert len(files) > 400
    found = {
        str(file.relative_to(root)): words
        for file in files
        if (words := replaced_words(file.read_text()))
    }
    assert not found


def test_files_that_are_named_exist(root):
    folders = (*CODE, "tests", "benchmarks")
    there = {
        "/".join(parts[start:])
        for folder in folders
        for file in (root / folder).rglob("*.py")
        for parts in [file.relative_to(root).parts]
        for start in range(len(parts))
    }
    found = {
        str(file.relative_to(root)): names
        for file in [*sources(root, ".py", ".cu", ".cuh"), root / "CONTRIBUTING.md"]
        if (names := named_files(file.read_text()) - there)
    }
    assert not found
    assert named_files("As in walk/step.py, not of <name>.py or a .py file") == {"walk/step.py"}


def test_files_of_text_end_with_one_newline_and_lines_without_blanks(root):
    folders = (*CODE, "tests", "benchmarks", "docs", "examples", ".ci")
    endings = {".py", ".cu", ".cuh", ".md", ".yaml", ".yml", ".toml", ".txt", ".typed", ""}
    files = [file for file in root.iterdir() if file.suffix in endings - {""} and file.is_file()]
    for folder in folders:
        files += [
            file
            for file in (root / folder).rglob("*")
            if file.is_file() and file.suffix in endings and "__pycache__" not in file.parts
        ]
    assert len(files) > 900
    found = [
        str(file.relative_to(root))
        for file in files
        if (text := file.read_text()) and badly_ended(text)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "bad"),
    [("a\n", False), ("a\n\nb\n", False), ("a", True), ("a\n\n", True), ("a \nb\n", True)],
)
def test_bad_ends_are_found(text, bad):
    assert badly_ended(text) == bad


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The graph\nturned round, as rows.", 1),
        ("edges that are turned round", 1),
        ("5.5 ms on their way back", 1),
        ("how often all nodes are looked at", 1),
        ("the backward pass of the transposed graph", 0),
        ("a place in memory is turned into bytes", 0),
        ("for one in _runs_beside(run)", 1),
        ("strip.load(hub, beside=(last, before))", 1),
        ("what there is besides", 0),
        ("_anew()(*arguments)", 1),
        ("remedy=_ANEW", 1),
        ("def let_go_of(array)", 1),
    ],
)
def test_words_are_found(text, count):
    assert len(replaced_words(text)) == count


def test_clients_arrays_and_communicators_have_a_type(root):
    found = {
        str(file.relative_to(root)): names
        for file in sources(root, ".py")
        # Here they are mpi4py's, and ours is made of them; Numba has types of its own.
        if file.parent != root / "workers/comm"
        and root / "kernels/cpu" not in file.parents
        and (names := untyped(file.read_text()))
    }
    assert not found
    assert untyped("def ask(client: Any) -> None: ...") == ["ask(client: Any)"]
    assert untyped("def copy(array: Any | None) -> None: ...") == ["copy(array: Any | None)"]
    assert untyped("def ask(client: Client | None, comm: AnyCommunicator) -> None: ...") == []
    assert untyped("def run(comm: Communicator) -> None: ...") == ["run(comm: Communicator)"]


def test_folders_hold_few_modules(root):
    counts = Counter(str(file.parent.relative_to(root)) for file in sources(root, ".py"))
    assert counts["cluster"] > 10
    assert not {
        name: count for name, count in counts.items() if count > MODULES and name not in LISTS
    }


# What one module does for all, and where it may stand besides.
SAID_ONCE = [
    (r"'s' \* \(", {"penstock/sizes.py"}),  # plurals of what is counted
    # Ranks are given the plan that the client made of a model.
    (r"import .*\blower\b|partial\(lower\b", {"pipelines/gnn/planning.py"}),
    # One rank is a gang of one, with a communicator.
    (r"\bcomm(unicator)? is (not )?None", set()),
    # The doctor tries whether a disk has locks at all.
    (r"fcntl\.(flock|lockf)\(", {"penstock/locks.py", "pipelines/doctor/disk.py"}),
    # Vector intrinsics lie in one folder; a loop that calls MPI has one of its own.
    (
        r"(?m)^\s*(from|import) llvmlite\b|\bimport .*\bintrinsic\b",
        {
            *(f"kernels/cpu/vector/{name}.py" for name in ("__init__", "registers", "sigmoids")),
            *("kernels/cpu/vector/blocks.py", "workers/comm/poll.py"),
        },
    ),
]


@pytest.mark.parametrize(("pattern", "places"), SAID_ONCE)
def test_it_is_said_once(root, pattern, places):
    found = {
        str(file.relative_to(root))
        for file in sources(root, ".py")
        if re.search(pattern, file.read_text())
    }
    assert found == places


def test_numba_compiles_kernels(root):
    found = {
        str(file.relative_to(root))
        for file in sources(root, ".py")
        if re.search(r"\bimport .*\bnjit\b", file.read_text())
    }
    assert len(found) > 20
    # A loop that calls MPI is no arithmetic, and has no naive twin; the doctor tries the compiler.
    others = {"workers/comm/poll.py", "pipelines/doctor/probes.py"}
    assert {name for name in found if not name.startswith("kernels/")} == others
