"""PyTorch's side of bench_embed.py, for a Python that has torch: steps of one kind, as one JSON.

Scores are matrix products, of distances cdist, or with "compiled" differences that torch.compile
fuses; cross-entropy against the true answer, sparse gradients summed by row, and Adagrad on those
rows only (its own optimizer is slower). Products are in TF32 on a GPU, or with "half" in float16.
"""

import contextlib
import json
import sys
import time

import torch
from torch.nn import functional

given = json.loads(sys.argv[1])
DIM, EDGES, NEGATIVES, MODEL = (given[name] for name in ("dim", "edges", "negatives", "model"))
DEVICE, HALF = torch.device("cuda" if given["device"] == "gpu" else "cpu"), given["dim"] // 2
DISTANCE = MODEL in ("TRANSE_L1", "TRANSE_L2", "ROTATE")
PIECE = 5000 if MODEL in ("TRANSE_L1", "ROTATE") else EDGES  # differences of a few GB

torch.set_num_threads(given["threads"])
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)
E = torch.randn(given["nodes"], DIM, device=DEVICE) * 0.1
R = torch.randn(given["relations"], DIM, device=DEVICE) * 0.1
SE, SR = torch.zeros_like(E), torch.zeros_like(R)


def times(x, r, conj):
    """Return the queries of edges."""
    if MODEL == "DOT":
        return x
    if MODEL == "DISTMULT":
        return x * r
    if MODEL.startswith("TRANSE"):
        return x - r if conj else x + r
    a, b = x[:, :HALF], x[:, HALF:]
    if MODEL == "ROTATE":
        c, d = torch.cos(r[:, :HALF]), torch.sin(r[:, :HALF])
    else:
        c, d = r[:, :HALF], r[:, HALF:]
    d = -d if conj else d
    return torch.cat([a * c - b * d, a * d + b * c], 1)


def away(a, b):
    """Return distances."""
    if MODEL == "ROTATE":
        squares = (a[..., :HALF] - b[..., :HALF]) ** 2 + (a[..., HALF:] - b[..., HALF:]) ** 2
        return (squares + 1e-20).sqrt().sum(-1)
    return (a - b).abs().sum(-1) if MODEL == "TRANSE_L1" else ((a - b) ** 2).sum(-1).sqrt()


def scores_of(query, answer, other):
    """Return the scores of the answers and of the negatives."""
    if not DISTANCE:
        return (query * answer).sum(1), query @ other.T
    if MODEL == "ROTATE" or given["compiled"]:
        return -away(query, answer), -away(query[:, None], other[None])
    return -away(query, answer), -torch.cdist(query, other, p=1.0 if MODEL == "TRANSE_L1" else 2.0)


def contrast(query, answer, other):
    """Return the loss without a copy of the scores."""
    positive, scores = scores_of(query, answer, other)
    return (torch.logaddexp(positive, scores.logsumexp(1)) - positive).sum()


def cross_entropy(query, answer, other):
    """Return the loss in the usual way."""
    positive, scores = scores_of(query, answer, other)
    target = torch.zeros(len(query), dtype=torch.long, device=DEVICE)
    return functional.cross_entropy(
        torch.cat([positive[:, None], scores], 1), target, reduction="sum"
    )


compare = torch.compile(contrast) if given["compiled"] else cross_entropy


def update(table, state, rows, slopes):
    """Sum slopes by row, and change rows by Adagrad."""
    unique, where = torch.unique(rows, return_inverse=True)
    total = torch.zeros(len(unique), DIM, device=DEVICE).index_add_(0, where, slopes)
    squares = state[unique] + total * total
    state[unique] = squares
    table[unique] -= 0.1 * total / (squares.sqrt() + 1e-10)


def draw(count, of):
    """Return random ids."""
    return torch.randint(0, of, (count,), device=DEVICE)


def step():
    """Train one batch."""
    nodes, sides = given["nodes"], given["sides"]
    h, r, t = draw(EDGES, nodes), draw(EDGES, given["relations"]), draw(EDGES, nodes)
    drawn = [draw(NEGATIVES, nodes) for _ in range(sides)]
    rows = torch.cat([h, t, *drawn])
    x, y = E[rows].requires_grad_(), R[r].requires_grad_()
    xh, xt, *others = x.split([EDGES, EDGES] + [NEGATIVES] * sides)
    for one, answer, other, conj in ((xh, xt, others[0], False), (xt, xh, others[-1], True))[
        :sides
    ]:
        query = times(one, y, conj)
        # Back to the queries and rows of a piece, and from all of them in one pass further.
        ends = [each.detach().requires_grad_() for each in (query, answer, other)]
        for first in range(0, EDGES, PIECE):
            part = slice(first, first + PIECE)
            with torch.autocast("cuda") if given["half"] else contextlib.nullcontext():
                loss = compare(ends[0][part], ends[1][part], ends[2])
            loss.backward()
        torch.autograd.backward(
            [query, answer, other], [end.grad for end in ends], retain_graph=True
        )
    update(E, SE, rows, x.grad)
    if MODEL != "DOT":
        update(R, SR, r, y.grad)


def wait():
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


for _ in range(2):
    step()
found = []
for _ in range(given["steps"]):
    wait()
    begun = time.perf_counter()
    step()
    wait()
    found.append(time.perf_counter() - begun)
most = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
print(json.dumps({"seconds": found, "bytes": most, "version": torch.__version__}))
