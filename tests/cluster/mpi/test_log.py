"""What launchers write, as they wrote it (shortened), and what is read from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.mpi.log import failure_in, rank_lines
from penstock.cluster.running import log_tail

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
    # MPICH
    "hydra, killed": (
        hydra("[mpiexec@vm] Exit codes: [vm] 9,0,9,0\n" + KILLED),
        "one of ranks 0, 2 on vm was killed by signal 9 (Killed)",
    ),
    "hydra, exit code": (
        hydra("[mpiexec@vm] Exit codes: [vm] 9,0,768,0\n" + KILLED),
        "rank 2 on vm exited with code 3",
    ),
    "hydra, segmentation fault": (
        hydra("[mpiexec@vm] Exit codes: [vm] 9,11,9,0\n" + KILLED),
        "rank 1 on vm was killed by signal 11 (Segmentation fault)",
    ),
    "hydra, no codes": (
        hydra("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)"),
        "a rank (process 5863) on vm was killed by signal 11 (Segmentation fault)",
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
    "hydra, left with a code": (
        hydra("", 9662, "h2", 3),
        "a rank (process 9662) on h2 exited with code 3",
    ),
    "hydra, two hosts, exit code": (
        "[2] rank 2 up\n[mpiexec@h1] Exit codes: [h1] 0,0\n[h2] 768,0\n",
        "rank 2 on h2 exited with code 3",
    ),
    "hydra, all with one code": (
        "[mpiexec@h1] Exit codes: [h1] 512\n[h2] 512,512\n",
        "ranks 0, 1, 2 on h1, h2 exited with code 2",
    ),
    "hydra, behind a line that does not end": (
        "[2] no newline at end 2[mpiexec@vm] Exit codes: [vm] 0,0,256,0\n",
        "rank 2 on vm exited with code 1",
    ),
    "hydra, abort": (
        "[2] Abort(7) on node 2 (rank 2 in comm 0): application called "
        "MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n",
        "rank 2 called MPI_Abort with code 7",
    ),
    "hydra, an error inside MPI": (
        "[1] Abort(874136848): Fatal error in internal_Init_thread: Internal MPI error!, error "
        "stack:\n[1] internal_Init_thread(71)........: MPI_Init_thread(argc=(nil)) failed\n",
        "Fatal error in internal_Init_thread: Internal MPI error!",
    ),
    "hydra, no program": (
        "[0] [proxy:0@vm] [1] [proxy:0@vm] [0] HYDU_create_process (utils/launch.c:73): execvp "
        "error on file /nowhere/python (No such file or directory)\n",
        "/nowhere/python could not be started: No such file or directory",
    ),
    "hydra, no host": (
        "ssh: Could not resolve hostname h9: Name or service not known\n"
        "[mpiexec@vm] ui_cmd_cb (mpiexec/pmiserv_pmci.c:51): Launch proxy failed.\n",
        "ssh: Could not resolve hostname h9: Name or service not known",
    ),
    "no key": (
        "root@h2: Permission denied (publickey,password).\n",
        "root@h2: Permission denied (publickey,password).",
    ),
    # Intel MPI
    "intel, killed": (
        intel(0, "vm") + intel(2, "vm") + "[mpiexec@vm] Exit codes: [vm:0] 9,9,9,9\n",
        "one of ranks 0, 1, 2, 3 on vm was killed by signal 9 (Killed)",
    ),
    "intel, exit code": (
        intel(3, "h2") + "[mpiexec@h1] Exit codes: [h1:0] 9,9\n[h2:0] 768,9\n",
        "rank 2 on h2 exited with code 3",
    ),
    "intel, no codes": (
        intel(3, "h2"),
        "rank 3 on h2 was killed by signal 9 (Killed)",
    ),
    # Open MPI 5
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
    "5, left silently": (
        f"{DASHES}\nprterun has exited due to process rank 2 with PID 6105 on node vm exiting\n"
        "improperly. There are three reasons this could occur:\n",
        "rank 2 on vm exited without MPI_Finalize",
    ),
    "5, abort": (
        f"[1,2]<stderr>: {DASHES}\n[1,2]<stderr>: MPI_ABORT was invoked on rank 2 in communicator "
        "MPI_COMM_WORLD\n[1,2]<stderr>:   Proc: [[11938,1],2]\n[1,2]<stderr>:   Errorcode: 7\n"
        f"[1,2]<stderr>: \n{DASHES}\nprterun has exited due to process rank 2 with PID 0 on node "
        'vm calling\n"abort". This may have caused other processes in the application to be\n',
        "rank 2 called MPI_Abort with code 7",
    ),
    "5, no program": (
        "prterun was unable to launch the specified application as it could not\naccess an "
        "executable:\n\n   Executable: /nowhere/python\n   Node: vm\n\nwhile attempting to start "
        "process rank 0.\n",
        "/nowhere/python could not be started on vm",
    ),
    "5, no program of that name": (
        "prterun was unable to find the specified executable file, and therefore did\nnot launch "
        "the job.  This error was first reported for process rank\n0; it may have occurred for "
        "other processes as well.\n\n   Node:       vm\n   Executable: nosuchprogram\n",
        "nosuchprogram could not be started on vm",
    ),
    "5, host without an answer": (
        "A daemon failed to report back after being spawned. This could\n\n  Local host:    vm\n"
        "  Remote host:   h2\n  Daemon exit status: 255\n",
        "the host h2 could not be reached",
    ),
    # Open MPI 4
    "4, killed": (
        f"[1,1]<stdout>:\n{DASHES}\nPrimary job  terminated normally, but 1 process returned\n"
        f"a non-zero exit code. Per user-direction, the job has been aborted.\n{DASHES}\nmpiexec "
        "noticed that process rank 2 with PID 0 on node vm exited on signal 11 (Segmentation "
        "fault).\n",
        "rank 2 on vm was killed by signal 11 (Segmentation fault)",
    ),
    "4, exit code": (
        "mpiexec detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n  Process name: "
        "[[31584,1],2]\n  Exit code:    3\n",
        "rank 2 exited with code 3",
    ),
    "4, left silently": (
        "mpiexec has exited due to process rank 2 with PID 0 on\nnode vm exiting improperly. "
        "There are three reasons this could occur:\n",
        "rank 2 on vm exited without MPI_Finalize",
    ),
    "4, abort": (
        f"{DASHES}\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode"
        " 7.\n\nNOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n",
        "rank 2 of MPI_COMM_WORLD called MPI_Abort with code 7",
    ),
    "4, no program": (
        "mpiexec was unable to launch the specified application as it could not access\nor execute"
        " an executable:\n\nExecutable: /nowhere/python\nNode: vm\n\nwhile attempting to start\n",
        "/nowhere/python could not be started on vm",
    ),
    # SLURM
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
    "srun, no program": (
        "srun: error: n1: task 0: Exited with exit code 2\n0: slurmstepd-n1: error: execve(): "
        "/nowhere/python: No such file or directory\n",
        "/nowhere/python could not be started: No such file or directory",
    ),
    "srun, no such node": (
        "srun: error: Unable to create step for job 4: Requested node configuration is not "
        "available\n",
        "Unable to create step for job 4: Requested node configuration is not available",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_who_died_first(name: str) -> None:
    text, said = FAILURES[name]
    assert failure_in(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[0] working\n[1] working\n",
        "[mpiexec@h1] Exit codes: [h1] 0,0\n[h2] 0,0\n",
        "[1,0]<stderr>: OSError: [Errno 13] Permission denied (really)\n",
        "0: done\n",
    ],
)
def test_nobody_died(text: str) -> None:
    assert failure_in(text) is None


TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: x[2] = 1"]


def test_lines_of_each_family() -> None:
    said = {0: ["rank 0 up"], 2: TRACEBACK}
    for mark in ("[{}] {}", "[1,{}]<stderr>: {}", "[1,{}]<stderr>:{}", "{}: {}", "{:2}: {}"):
        lines = [mark.format(rank, line) for rank in said for line in [*said[rank], ""]]
        log = ["mpiexec says this", *lines, DASHES]
        assert rank_lines("\n".join(log)) == said, mark


def test_open_mpi_starts_in_the_middle_of_a_line() -> None:
    text = (
        "[1,2]<stdout>:rank 2 up[1,1]<stdout>:rank 1 up[1,2]<stdout>:\n[1,1]<stdout>:\n"
        "[1,0]<stderr>:half [1,0]<stderr>:a line\n"
    )
    assert rank_lines(text) == {0: ["half a line"], 1: ["rank 1 up"], 2: ["rank 2 up"]}


def test_no_ranks() -> None:
    assert rank_lines("") == {}
    assert rank_lines("ssh: connect to host h2 port 22: Connection refused\n") == {}


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


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "world.log"
    assert log_tail(log) == ""
    log.write_text("".join(f"line {i}\n\n" for i in range(100_000)))
    assert log_tail(log, lines=2) == "line 99998\nline 99999"
    log.write_bytes(b"caf\xe9\n")
    assert log_tail(log) == "caf�"
