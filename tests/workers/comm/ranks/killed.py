"""A world of which a rank is killed while it maps shared memory: started for test_segments.py."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.segments import note_segments


def main():
    world = load_mpi().COMM_WORLD
    note_segments()
    world.Allreduce(np.ones(1000), np.empty(1000))
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split(None, 5)[5] for line in lines if " /dev/shm/" in line}
    said = [f"process {os.getpid()}", *(f"maps {path}" for path in sorted(mapped))]
    sys.stdout.write("\n".join(said) + "\n")
    sys.stdout.flush()
    world.Barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.Barrier()


if __name__ == "__main__":
    main()
