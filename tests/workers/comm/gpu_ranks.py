"""One rank of the tests in test_exchange_gpu.py: cases that all ranks run together.

    mpiexec -n 2 python -P tests/workers/comm/gpu_ranks.py own|shared CASE...

Each rank takes a GPU of its own, or all the same. A case that every rank passed is printed; the
first failure ends the world.
"""

import os
import sys
import threading
import time
import traceback
import weakref
from contextlib import suppress

import numpy as np

from penstock.errors import UsageError
from penstock.workers.comm import nccl
from penstock.workers.comm.communicator import Communicator
from penstock.workers.comm.exchange_device import device_exchange
from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.wait import Cancelled, Waiter, WaitTimeout
from penstock.workers.resources.device import devices_here, local_rank, visible_devices

MPI = load_mpi()
DTYPES = "?bBhHiIlLqQefdFD"
abandoned = []  # what failed gangs left, for ever


def choose_gpu(kind):
    """Set CUDA_VISIBLE_DEVICES, before CUDA is touched."""
    here = local_rank(os.environ) if kind == "own" else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(here or 0, devices_here(), visible)


def gang(generation="tests", wait_timeout=60.0):
    """Begin a gang of all ranks."""
    comm, waiter = MPI.COMM_WORLD.Dup(), Waiter()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    device = device_exchange(comm, waiter, tuple(range(comm.size)), generation, timeout=120)
    return Communicator(comm, waiter, wait_timeout=wait_timeout, device=device)


def way(c):
    """Return how arrays on GPUs travel."""
    import cupy

    return c.transport(cupy.zeros(1))


def kept(c, generation="tests"):
    """Return the name of the NCCL communicator that is kept for the next gang, if any."""
    key = tuple(range(c.size)), generation
    link = nccl.kept(key)
    if link is not None:
        nccl.keep(key, link)
    return link.name if link is not None else ""


def random_array(seed, size, dtype):
    """Return the same random bytes for the same seed, on any rank."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.random(size) < 0.5
    return random.integers(0, 256, size * dtype.itemsize, dtype=np.uint8).view(dtype)


def same_bytes(found, expected):
    return found.get().tobytes() == expected.tobytes()


# The cases, in the order in which they run


def kind(c):
    """How arrays travel."""
    own = sys.argv[1] == "own" and c.size > 1
    assert way(c) == ("NCCL" if own else "MPI messages from pinned host memory")


def messages(c):
    """Several messages between all pairs, posted in another order on every rank."""
    import cupy

    for round_ in range(30):
        shared = np.random.default_rng((round_, c.size))
        plan = []
        for source in range(c.size):
            for to in range(c.size):
                for tag in shared.permutation(5)[: shared.integers(0, 4)]:
                    size = int(shared.choice([0, 1, 7, 1000, 100_003]))
                    plan.append((source, to, int(tag), size, DTYPES[shared.integers(len(DTYPES))]))
        requests, came = [], []
        for at in np.random.default_rng((round_, c.rank, 1)).permutation(len(plan)):
            source, to, tag, size, dtype = plan[at]
            data = random_array((round_, int(at)), size, dtype)
            if source == c.rank:
                requests.append(c.isend(cupy.asarray(data), to, tag))
            if to == c.rank:
                target = cupy.asarray(random_array((round_, int(at), 9), size, dtype))
                came.append((target, data))
                requests.append(c.irecv(target, source, tag))
        if round_ % 3 == 1:
            c.start()
        if round_ % 3 == 2:
            while not c.test(requests):
                pass
        c.wait(requests)
        assert all(same_bytes(*pair) for pair in came), round_


def reductions(c):
    """All types and operations, with numbers for which the order of additions cannot matter."""
    import cupy

    dtypes = [np.dtype(char) for char in "bBhHiIlLqQefd"]
    with suppress(ImportError, TypeError, ValueError):  # not every CuPy has it
        import ml_dtypes

        half = cupy.zeros(1, ml_dtypes.bfloat16)
        dtypes.append(half.astype(np.float32).astype(half.dtype).dtype)
    combine = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}
    for dtype in dtypes:
        for operation, how in combine.items():
            for size in (0, 1, 1000, 65_537):
                every = [
                    np.random.default_rng((rank, size)).integers(1, 4, size)
                    for rank in range(c.size)
                ]
                array = cupy.asarray(every[c.rank].astype(dtype))
                assert c.allreduce(array, operation) is array
                expected = how(np.array(every), axis=0).astype(dtype)
                assert same_bytes(array, expected), (dtype.name, operation, size)
    every = [np.random.default_rng(rank).standard_normal(10_007) for rank in range(c.size)]
    array = cupy.asarray(every[c.rank].reshape(1, -1).astype(np.float32))
    c.allreduce(array)
    assert np.allclose(array.get()[0], np.sum(every, axis=0), rtol=1e-5, atol=1e-5)
    wrapped = c.allreduce(cupy.full(3, 30_000, np.int16)).get()
    assert (wrapped == np.array(30_000 * c.size).astype(np.int16)).all()


def collectives(c):
    """Broadcasts from every root, and all-to-alls with empty parts."""
    import cupy

    for root in range(c.size):
        for dtype in DTYPES:
            data = random_array((root, 5), 1001, dtype)
            array = cupy.asarray(data if c.rank == root else random_array((9,), 1001, dtype))
            c.broadcast(array, root)
            assert same_bytes(array, data), (root, dtype)
    c.broadcast(cupy.zeros(0), 0)
    for round_ in range(20):
        shared = np.random.default_rng(round_)
        sizes = shared.choice([0, 0, 1, 333, 50_001], (c.size, c.size))
        if round_ == 0:
            sizes[:] = 0
        dtype = DTYPES[shared.integers(len(DTYPES))]
        out = [random_array((round_, c.rank, r), sizes[c.rank, r], dtype) for r in range(c.size)]
        came = [cupy.empty(sizes[r, c.rank], dtype) for r in range(c.size)]
        c.alltoallv([cupy.asarray(array) for array in out], came)
        for r, array in enumerate(came):
            assert same_bytes(array, random_array((round_, r, c.rank), array.size, dtype))
    counts = c.alltoall(cupy.arange(c.size) + 10 * c.rank)
    assert (counts.get() == np.arange(c.size) * 10 + c.rank).all()


def together(c):
    """Messages of NumPy and CuPy arrays, a reduction among them, one wait for all."""
    import cupy

    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    for round_ in range(20):
        host, came_host = np.full(10, c.rank + round_), np.zeros(10, int)
        gpu, came_gpu = cupy.full(10_000, c.rank + round_, np.int32), cupy.zeros(10_000, np.int32)
        total, total_host = cupy.full(3, c.rank + 1), np.full(3, c.rank + 1)
        c.wait(
            [
                c.irecv(came_gpu, left, 2),
                c.isend(host, right, 1),
                c.isend(gpu, right, 2),
                c.iallreduce(total),
                c.irecv(came_host, left, 1),
                c.iallreduce(total_host),
            ]
        )
        assert (came_host == left + round_).all()
        assert (came_gpu.get() == left + round_).all()
        expected = c.size * (c.size + 1) // 2
        assert (total.get() == expected).all()
        assert (total_host == expected).all()


def streams(c):
    """What was written just before travels, and what is written just after does not."""
    import cupy

    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    size = 1 << 22
    for round_ in range(10):
        with cupy.cuda.Stream(non_blocking=True):
            out, came = cupy.zeros(size, np.float32), cupy.full(size, np.nan, np.float32)
            for _ in range(50):
                out += 1
            out += c.rank + round_
            request = c.isend(out, right)
            total = c.iallreduce(add := out.copy(), "max")
            c.wait([c.irecv(came, left), request])
            out[...] = -1
            came += 1
            c.wait(total)
            add += 1
            assert (came.get() == 51 + left + round_).all(), round_
            assert (add.get() == 50 + c.size + round_).all(), round_


def followed(c):
    """A stream waits for what travels, and the host does not: what is launched next finds it."""
    import cupy

    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    size, held = 1 << 20, []
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for round_ in range(30):
        with streams[round_ % 2]:
            out, came = cupy.zeros(size, np.float32), cupy.full(size, np.nan, np.float32)
            for _ in range(20):
                out += 1
            out += c.rank + round_
            requests = [c.irecv(came, left), c.isend(out, right)]
            c.start()
            c.follow(requests)
            held.append(weakref.ref(requests[0]))
            del requests
            came += 1
            total, small = came.copy(), cupy.full(3, c.rank + 1, np.int16)
            c.follow([c.iallreduce(total), c.iallreduce(small)])
            total -= 1
            c.follow(c.isend(np.full(1, c.rank), right))  # by MPI: waited for
            word = np.zeros(1, int)
            c.follow(c.irecv(word, left))
            assert word[0] == left
            c.synchronize()
            assert cupy.cuda.get_current_stream().done
            assert (came.get() == 21 + left + round_).all(), round_
            every = sum(21 + rank + round_ for rank in range(c.size))
            assert (total.get() == every - 1).all(), round_
            assert (small.get() == c.size * (c.size + 1) // 2).all()
    assert all(one() is None for one in held)


def marked(c):
    """What was launched before a mark is there when it is reached; the host is a round ahead."""
    import cupy

    other, launched = cupy.cuda.Stream(non_blocking=True), []
    for round_ in range(8):
        total = cupy.full(1 << 16, c.rank + round_, np.float32)
        c.follow(c.iallreduce(total))
        total += 1
        launched.append((c.mark(), total))
        if round_:
            mark, before = launched[round_ - 1]
            c.reach(mark)
            with other:  # it waits for nothing else
                came = before.get()
            every = sum(rank + round_ - 1 for rank in range(c.size))
            assert (came == every + 1).all(), round_
    c.synchronize()
    c.reach(launched[-1][0])  # long there


def overlapped(c):
    """What NCCL moves is there before a sum ends that was launched before it could begin."""
    import cupy

    if way(c) != "NCCL":
        return
    # Many short blocks, as of a sum over neighbours: those that wait are as many as the GPU holds
    # at once, many times over.
    compute = cupy.RawKernel(
        """extern "C" __global__ void spin(long long cycles) {
            const long long begun = clock64();
            while (clock64() - begun < cycles) {}
        }""",
        "spin",
    )
    many = cupy.cuda.Device().attributes["MultiProcessorCount"] * 16 * 100
    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    out, came = cupy.ones(1 << 22, np.float32), cupy.zeros(1 << 22, np.float32)
    sums, other = cupy.ones(1000, np.float32), cupy.cuda.Stream(non_blocking=True)
    everything(c)
    c.allreduce(sums)  # they are connected
    for _ in range(3):
        c.synchronize()
        c.barrier()
        begun, computed, moved = (cupy.cuda.Event() for _ in range(3))
        with other:  # a tenth of a second
            begun.record()
            compute((many,), (128,), (np.int64(2_000_000),))
            computed.record()
        requests = [c.irecv(came, left), c.isend(out, right)]
        c.start()
        requests.append(c.iallreduce(sums))
        c.follow(requests)
        moved.record()
        c.synchronize()
        other.synchronize()
        total = cupy.cuda.get_elapsed_time(begun, computed)
        first = cupy.cuda.get_elapsed_time(begun, moved)
    if c.rank == 0:
        print(f"    computed {total:.1f} ms, there after {first:.1f} ms", flush=True)
    assert first < total / 4, (first, total)


def large(c):
    """More than 2^31 elements, in a message and in a reduction."""
    import cupy

    size = (1 << 31) + 5
    pattern = cupy.ElementwiseKernel(
        "int64 seed", "int8 out", "out = (i * 2654435761LL + seed * 40503LL) >> 11", "pattern"
    )

    def of(rank):
        out = cupy.empty(size, np.int8)
        pattern(rank, out)
        return out

    mine, came, left = of(c.rank), cupy.full(size, 7, np.int8), (c.rank - 1) % c.size
    c.wait([c.irecv(came, left), c.isend(mine, (c.rank + 1) % c.size)])
    assert bool((came == of(left)).all())
    del came
    c.allreduce(mine, "max")
    expected = of(0)
    for rank in range(1, c.size):
        cupy.maximum(expected, of(rank), out=expected)
    assert bool((mine == expected).all())
    del mine, expected
    cupy.get_default_memory_pool().free_all_blocks()


def timeouts(c):
    """A wait that is not answered in time fails, and may be repeated."""
    import cupy

    array, word = cupy.full(1000, c.rank), np.zeros(1)
    if c.rank == 0:
        request = c.iallreduce(array)
        try:
            c.wait(request, timeout=0.3)
        except WaitTimeout:
            pass
        else:
            raise AssertionError("it did not wait")
        c.wait([c.isend(word, to) for to in range(1, c.size)])
        c.wait(request)
    else:
        c.wait(c.irecv(word, 0))
        c.allreduce(array)
    assert int(array[0]) == c.size * (c.size - 1) // 2


def reuse(c):
    """Twenty gangs, one after the other: no growth of device memory, nor of open files."""
    # Free memory is that of the whole GPU, where other processes load kernels, too. What leaks does
    # so in every round.
    for _ in range(5):
        found = _twenty_gangs(c)
        grown = np.array(np.quantile(-np.diff([free for free, *_ in found[2:]]), 0.25))
        c.broadcast(grown)
        if grown * len(found) < 1 << 22:
            break
    else:
        raise AssertionError(found)
    assert found[2][1:] == found[-1][1:], found


def _twenty_gangs(c):
    """Return the GPU's free memory, the open files and the link after each."""
    import cupy

    found, seconds = [], []
    for _ in range(20):
        start = time.perf_counter()
        inner = gang()
        seconds.append(time.perf_counter() - start)
        everything(inner)
        inner.leave()
        cupy.cuda.runtime.deviceSynchronize()
        MPI.COMM_WORLD.Barrier()
        files = len(os.listdir("/proc/self/fd"))
        found.append((cupy.cuda.runtime.memGetInfo()[0], files, kept(c)))
        MPI.COMM_WORLD.Barrier()
    if c.rank == 0:
        later = np.median(seconds[1:])
        print(f"    first gang {seconds[0]:.3f} s, later {later:.4f} s", flush=True)
    return found


def renewed(c):
    """If one rank let go of its communicator, all make a new one."""
    first = gang("renewed")
    everything(first)
    first.leave()
    if c.rank == 0:
        link = nccl.kept((tuple(range(c.size)), "renewed"))
        if link is not None:
            link.abort()
    second = gang("renewed")
    everything(second)
    second.leave()
    assert len(set(c.allgather(kept(c, "renewed")))) == 1


def everything(c):
    """A little of each, to see that a gang works."""
    import cupy

    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    came = cupy.zeros(1000)
    c.wait([c.isend(cupy.full(1000, float(c.rank)), right), c.irecv(came, left)])
    assert (came.get() == left).all()
    assert (c.allreduce(cupy.ones(1000)).get() == c.size).all()
    assert (c.broadcast(cupy.full(5, c.rank), c.size - 1).get() == c.size - 1).all()
    assert (c.alltoall(cupy.full(c.size, c.rank)).get() == np.arange(c.size)).all()


def disagreements(c):
    """Arrays that are not alike are an error on every rank, whether NCCL has begun or not."""
    import cupy

    first = c.rank == 0
    for number, (size, dtype) in enumerate([(1000 + first, "f8"), (9, "f8"), (1000, "f4")]):
        mine = gang(f"disagreement {number}")
        everything(mine)
        try:
            mine.allreduce(cupy.ones(size, dtype) if first else cupy.ones(1000))
        except UsageError:
            abandoned.append(mine.abandon())
        else:
            raise AssertionError((size, dtype))


def ended_early(begin, *, warm):
    """Rank 0 begins what the others never answer; all are cancelled, and the next gang works."""
    import cupy

    c = gang("cancelled")
    if warm:
        everything(c)
    MPI.COMM_WORLD.Barrier()
    timer = threading.Timer(0.5, c.waiter.cancel)
    timer.start()
    begun = time.perf_counter()
    try:
        if c.rank == 0:
            begin(c)
        else:
            c.waiter.wait_until(lambda: False, 30)
        raise AssertionError("it was not cancelled")
    except Cancelled:
        cancelled = time.perf_counter() - begun
        abandoned.append(c.abandon())
        aborted = time.perf_counter() - begun
    assert cupy.arange(1000).sum().get() == 499_500
    cupy.cuda.runtime.deviceSynchronize()
    free = time.perf_counter() - begun
    if c.rank == 0:
        print(
            f"    cancelled {cancelled:.2f} s, aborted {aborted:.2f} s, GPU free {free:.2f} s",
            flush=True,
        )
    assert free < 5, (cancelled, aborted, free)
    again = gang("cancelled")
    everything(again)
    again.leave()


def stuck_at_meeting(c):
    """A first message whose peer never comes."""
    import cupy

    ended_early(lambda gone: gone.wait(gone.irecv(cupy.zeros(10), c.size - 1)), warm=False)


def stuck_stream(c):
    """A stream that waits for a receive that is never answered, and the host for the stream."""
    import cupy

    def begin(gone):
        gone.follow(gone.irecv(cupy.zeros(1 << 20), c.size - 1))
        gone.synchronize()

    ended_early(begin, warm=True)


def late_stream(c):
    """What a stream waits for is missed in time; computing may take longer than that."""
    import cupy

    if way(c) != "NCCL":
        return
    everything(c)
    inner = gang("late", wait_timeout=0.5)
    everything(inner)
    array = cupy.full(1000, float(c.rank))
    if c.rank == 0:
        inner.follow(inner.iallreduce(array))
        try:
            inner.synchronize()
        except WaitTimeout:
            pass
        else:
            raise AssertionError("it did not wait")
        c.wait([c.isend(np.zeros(1), to) for to in range(1, c.size)])
    else:
        c.wait(c.irecv(np.zeros(1), 0))
        inner.follow(inner.iallreduce(array))
    inner.synchronize()
    assert int(array[0]) == c.size * (c.size - 1) // 2
    inner.leave()


def one_graph(c):
    """PageRank and components of one graph are those of one GPU, byte by byte."""
    from penstock.csr import CSR
    from penstock.kernels.cuda import components, pagerank
    from penstock.workers.resources.upload import upload_rows

    ends = np.random.default_rng(7).zipf(1.3, (400_000, 2)) * 7919 % 150_000
    both = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    rows = [CSR.from_edges(both[:, 0], both[:, 1], 150_000, weights=1.0 + both.sum(1) % 3)]
    whole, mine = upload_rows(rows, weighted=True), upload_rows(rows, weighted=True, ranks=c)
    assert mine[0].edges < whole[0].edges or c.size == 1
    for weighted in (False, True):
        given = {"directed": False, "weighted": weighted, "tolerance": 1e-12}
        wanted, steps = pagerank.pagerank(whole, **given)
        found, its = pagerank.pagerank(mine, ranks=c, **given)
        assert its == steps > 1
        assert same_bytes(found, wanted.get())
    wanted = components.components(whole, symmetric=True).get()
    assert same_bytes(components.components(mine, symmetric=True, ranks=c), wanted)


def stuck_receive(c):
    """A receive that runs on the GPU and is never answered."""
    import cupy

    ended_early(lambda gone: gone.wait(gone.irecv(cupy.zeros(1 << 20), c.size - 1)), warm=True)


def stuck_reduction(c):
    """A reduction, of a size that was reduced before, that the others never begin."""
    import cupy

    ended_early(lambda gone: gone.allreduce(cupy.zeros(1000)), warm=True)


def stuck_first_reduction(c):
    """The same as the communicator's first use."""
    import cupy

    ended_early(lambda gone: gone.allreduce(cupy.zeros(1 << 24)), warm=False)


def main():
    """Run the cases that the command line names."""
    choose_gpu(sys.argv[1])
    for name in sys.argv[2:]:
        start = time.perf_counter()
        try:
            c = gang()
            globals()[name](c)
            c.leave()
        except BaseException:
            print(
                f"FAILED {name} on rank {MPI.COMM_WORLD.rank}\n{traceback.format_exc()}", flush=True
            )
            os._exit(1)
        if MPI.COMM_WORLD.rank == 0:
            print(f"passed {name} {time.perf_counter() - start:.2f} s", flush=True)
    MPI.COMM_WORLD.Barrier()
    sys.stdout.flush()
    os._exit(0)  # MPI would wait for what cancelled gangs left


if __name__ == "__main__":
    main()
