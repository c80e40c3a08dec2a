"""What launchers write, as they wrote it (shortened), and what is read from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.mpi.log import failure_in, rank_lines

BAR = "=" * 40
DASHES = "-" * 40


def hydra(ending: str, pid: int = 5863, host: str = "vm", code: int = 9) -> str:
    return f"""[1] rank 1 up
[3] rank 3 up[3]\x20
[0] rank 0 up

{BAR}
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID {pid} RUNNING AT {host}
=   EXIT CODE: {code}
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
{BAR}
{ending}"""


def intel(rank: int, host: str) -> str:
    return f"""
{BAR}
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK {rank} PID 14266 RUNNING AT {host}
=   KILLED BY SIGNAL: 9 (Killed)
{BAR}
"""


KILLED = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"

FAILURES = {
    "hydra, killed": (
        hydra("[mpiexec@vm] Exit codes: [vm] 9,0,9,0\n" + KILLED),
        "one of ranks 0, 2 on vm was killed by signal 9 (Killed)",
    ),
    "hydra, exit code": (
        hydra("[mpiexec@vm] Exit codes: [vm] 9,0,768,0\n" + KILLED),
        "rank 2 on vm exited with code 3",
    ),
    "hydra, two hosts, killed": (
        hydra(
            "[proxy:0@h1] HYD_pmcd_pmip_control_cmd_cb (proxy/pmip_cb.c:490): assert (!closed) "
            "failed\n[mpiexec@h1] main (mpiexec/mpiexec.c:270): process manager error\n",
            9662,
            "h2",
        ),
        "a rank (process 9662) on h2 was killed by signal 9 (Killed)",
    ),
    "intel, no codes": (
        intel(3, "h2"),
        "rank 3 on h2 was killed by signal 9 (Killed)",
    ),
    "5, killed": (
        f"[1,0]<stdout>: rank 0 up\n{DASHES}\nprterun noticed that process rank 2 with PID 5884 "
        f"on node vm exited on\nsignal 9 (Killed).\n{DASHES}\n",
        "rank 2 on vm was killed by signal 9 (Killed)",
    ),
    "5, exit code": (
        f"{DASHES}\nprterun detected that one or more processes exited with non-zero status,\n"
        "thus causing the job to be terminated. The first process to do so was:\n\n"
        f"   Process name: [prterun-vm-6026@1,2]\n   Exit code:    3\n{DASHES}\n",
        "rank 2 exited with code 3",
    ),
    "4, killed": (
        f"[1,1]<stdout>:\n{DASHES}\nPrimary job  terminated normally, but 1 process returned\n"
        f"a non-zero exit code. Per user-direction, the job has been aborted.\n{DASHES}\nmpiexec "
        "noticed that process rank 2 with PID 0 on node vm exited on signal 11 (Segmentation "
        "fault).\n",
        "rank 2 on vm was killed by signal 11 (Segmentation fault)",
    ),
    "4, left silently": (
        "mpiexec has exited due to process rank 2 with PID 0 on\nnode vm exiting improperly. "
        "There are three reasons this could occur:\n",
        "rank 2 on vm exited without MPI_Finalize",
    ),
    "srun, killed": (
        "0: rank 0 up\nsrun: error: n2: task 2: Killed\nsrun: launch/slurm: _step_signal: "
        "Terminating StepId=4.7\n0: slurmstepd-n1: error: *** STEP 4.7 ON n1 CANCELLED ***\n"
        "srun: error: n2: task 3: Terminated\n",
        "rank 2 on n2 ended: Killed",
    ),
    "srun, exit code": (
        "srun: error: n2: task 2: Exited with exit code 3\nsrun: error: n1: tasks 0-1: Killed\n",
        "rank 2 on n2 exited with code 3",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_who_died_first(name: str) -> None:
    text, said = FAILURES[name]
    assert failure_in(text) == said


@pytest.mark.parametrize(
    "text", ["[0] working\n[1] working\n", "[mpiexec@h1] Exit codes: [h1] 0,0\n[h2] 0,0\n"]
)
def test_nobody_died(text: str) -> None:
    assert failure_in(text) is None


def test_open_mpi_starts_in_the_middle_of_a_line() -> None:
    text = (
        "[1,2]<stdout>:rank 2 up[1,1]<stdout>:rank 1 up[1,2]<stdout>:\n[1,1]<stdout>:\n"
        "[1,0]<stderr>:half [1,0]<stderr>:a line\n"
    )
    assert rank_lines(text) == {0: ["half a line"], 1: ["rank 1 up"], 2: ["rank 2 up"]}


LINE = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1).filter(
    lambda line: "<std" not in line
)


@given(
    st.lists(st.tuples(st.integers(0, 300), LINE), min_size=1),
    st.sampled_from(["[{}] {}\n", "[1,{}]<stdout>: {}\n", "[1,{}]<stdout>:{}\n", "{}: {}\n"]),
)
def test_every_line_comes_back(said: list[tuple[int, str]], mark: str) -> None:
    expected: dict[int, list[str]] = {}
    for rank, line in said:
        expected.setdefault(rank, []).append(line)
    assert rank_lines("".join(mark.format(*one) for one in said)) == dict(sorted(expected.items()))
