"""How the ranks of a gang communicate: through MPI, NCCL and shared memory."""
