"""The instance of train.cu for a dimension and rules, and its launch configuration.

Plain arithmetic on a GPU's properties, testable without one.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.kernels.word2vec_rules import MAX_DIMENSION, Word2vecRules

_LANES = 32
_ROWS = 6  # train.cu's kRows: output vectors that stay in registers
_STEPS = 8  # floats of a context's gradients with them
_LISTS = 32 + 3 * 64  # words of train.cu's contexts, words, places and negatives
_WARPS = 16  # of a multiprocessor: train.cu's launch bounds leave each thread 128 registers
_RESERVED = 1024  # bytes of shared memory that every block takes in addition
_ENOUGH = 8  # warps of a multiprocessor, before output vectors are copied a window ahead
_CUTS = 8  # pieces per team: at the end teams wait for half of one
_SHORTEST, _LONGEST = 128, 10_000  # places of a piece
_TAKEN = 256  # places worth a request

MAX_HALF_WINDOW = 15  # a lane has one place of the window, and a next one
MAX_NEGATIVES = 31  # a lane has a target


@dataclass(frozen=True)
class Device:
    """Properties of a GPU.

    multiprocessors   their number
    block_memory      bytes of shared memory that a block can have
    memory            of a multiprocessor
    """

    multiprocessors: int
    block_memory: int
    memory: int


@dataclass(frozen=True)
class LaunchConfig:
    """The configuration of a launch.

    each, vec  columns per lane, and how many of them are adjacent
    single     whether all output vectors of a window stay in registers
    shared     whether they can also stay for the next window, if it draws the same negatives
    team       warps that share a sentence
    stages     buffers of output vectors; with 2, or if ``single``, they are copied a window ahead
    keeps      whether input vectors are added to when they leave the window, not after each
    a_warp     floats of shared memory per warp
    warps      of a block
    blocks     of a multiprocessor
    """

    each: int
    vec: int
    single: bool
    shared: bool
    team: int
    stages: int
    keeps: bool
    a_warp: int
    warps: int
    blocks: int

    @property
    def instance(self) -> str:
        """The kernel's name."""
        single, shared = str(self.single).lower(), str(self.shared).lower()
        return f"train<{self.each}, {self.vec}, {single}, {shared}>"

    @property
    def shared_memory(self) -> int:
        """Bytes of a block."""
        sums = 2 * self.team * 2 * _LANES if self.team > 1 else 0
        return 4 * (self.warps * self.a_warp + sums)


def launch_config(
    dimension: int, rules: Word2vecRules, device: Device, *, aligned: bool = True
) -> LaunchConfig:
    """Return the launch for rows of this dimension.

    aligned  whether rows of a multiple of 4 columns begin at multiples of 16 bytes
    """
    _check(dimension, rules)
    each, vec = _columns(dimension, aligned)
    team = -(-dimension // (_LANES * each))
    single = rules.negatives < _ROWS
    shared = single and rules.shared_windows > 1 and vec > 1  # else rows are read again
    fitting: list[LaunchConfig] = []
    for stages, keeps in ((2, True), (1, True), (1, False)):
        if single and stages == 2:
            continue  # registers are the second buffer
        a_warp = _floats(each, rules, stages, keeps)
        choices = []
        for warps in (4, 2, 1) if team == 1 else (team,):
            tried = LaunchConfig(each, vec, single, shared, team, stages, keeps, a_warp, warps, 1)
            held = device.memory // (tried.shared_memory + _RESERVED)
            blocks = min(held, _WARPS // warps)
            if tried.shared_memory <= device.block_memory and blocks:
                choices.append(
                    LaunchConfig(
                        each, vec, single, shared, team, stages, keeps, a_warp, warps, blocks
                    )
                )
        if choices:
            fitting.append(max(choices, key=lambda one: one.warps * one.blocks))
    if not fitting:
        a_block = 4 * team * _floats(each, rules, 1, keeps=False)
        raise UsageError(
            "a window's vectors do not fit in the shared memory of this GPU",
            expected=f"{device.block_memory} bytes at most",
            got=f"{a_block} bytes ({dimension} columns, half window {rules.half_window}, "
            f"{rules.negatives} negatives)",
            remedy="take a smaller window or fewer negatives, or train on the CPU (--device cpu)",
        )
    ahead = fitting[0]
    if ahead.stages == 2 and len(fitting) > 1 and ahead.warps * ahead.blocks < _ENOUGH:
        return fitting[1]
    return ahead


def piece_length(words: int, teams: int) -> int:
    """Return the most places of a sentence that a team takes; a lone team takes all."""
    if teams == 1:
        return (1 << 31) - 1
    return min(max(words // (teams * _CUTS), _SHORTEST), _LONGEST)


def pieces_together(words: int, sentences: int, teams: int) -> int:
    """Return how many pieces a team takes at a time: several, if sentences are short."""
    a_team = sentences // (teams * _CUTS)
    return max(1, min(_TAKEN * sentences // max(words, 1), a_team))


def _check(dimension: int, rules: Word2vecRules) -> None:
    limits = (
        ("dimension", dimension, MAX_DIMENSION),
        ("half window", rules.half_window, MAX_HALF_WINDOW),
        ("number of negatives", rules.negatives, MAX_NEGATIVES),
        ("pool of negatives", rules.pool, 0),
    )
    for name, value, most in limits:
        if value > most:
            raise UsageError(
                f"word2vec on a GPU has no kernel for this {name}",
                expected=f"{most} at most",
                got=str(value),
                remedy="take a smaller one, or train on the CPU (--device cpu)",
            )


def _columns(dimension: int, aligned: bool) -> tuple[int, int]:
    if dimension <= _LANES:
        return 1, 1
    if dimension <= 2 * _LANES and dimension % 2 == 0 and aligned:
        return 2, 2
    return 4, 4 if dimension % 4 == 0 and aligned else 1


def _floats(each: int, rules: Word2vecRules, stages: int, keeps: bool) -> int:
    wide, targets = _LANES * each, rules.negatives + 1
    slots = 2 * rules.half_window + 2
    rows = slots * (1 + keeps) + stages * targets
    steps = -(-targets // _ROWS) * 2 * rules.half_window * _STEPS
    return rows * wide + steps + _LISTS
