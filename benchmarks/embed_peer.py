"""PyTorch's side of bench_embed.py, for a Python that has torch: steps of each kind, as one JSON.

Scores are matrix products, of distances cdist, or with "compiled" differences that torch.compile
fuses; cross-entropy against the true answer, sparse gradients summed by row, and Adagrad on those
rows only (its own optimizer is slower). Products are in TF32 on a GPU, or with "half" in float16.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
from torch.nn import functional

given = json.loads(sys.argv[1])
DIM, EDGES, NEGATIVES, NODES = (given[name] for name in ("dim", "edges", "negatives", "nodes"))
DEVICE, HALF = torch.device("cuda" if given["device"] == "gpu" else "cpu"), DIM // 2
CLOCK = getattr(time, given["clock"])

torch.set_num_threads(given["threads"])
torch.backends.cuda.matmul.allow_tf32 = True


def draw(count, of):
    """Return random ids."""
    return torch.randint(0, of, (count,), device=DEVICE)


def update(table, state, rows, slopes):
    """Sum slopes by row, and change rows by Adagrad."""
    unique, where = torch.unique(rows, return_inverse=True)
    total = torch.zeros(len(unique), DIM, device=DEVICE).index_add_(0, where, slopes)
    squares = state[unique] + total * total
    state[unique] = squares
    table[unique] -= 0.1 * total / (squares.sqrt() + 1e-10)


class Steps:
    """Steps of a model, for tails or for both sides."""

    def __init__(self, model, sides, compiled, half):
        torch.manual_seed(0)
        torch._dynamo.reset()  # another model's loss is another program
        self.model, self.sides, self.compiled, self.half = model, sides, compiled, half
        self.distance = model in ("TRANSE_L1", "TRANSE_L2", "ROTATE")
        self.piece = 5000 if model in ("TRANSE_L1", "ROTATE") else EDGES  # differences of a few GB
        self.nodes, self.relations = (
            torch.randn(count, DIM, device=DEVICE) * 0.1 for count in (NODES, given["relations"])
        )
        self.states = torch.zeros_like(self.nodes), torch.zeros_like(self.relations)
        self.compare = torch.compile(self.contrast) if compiled else self.cross_entropy

    def times(self, x, r, conj):
        """Return the queries of edges."""
        if self.model == "DOT":
            return x
        if self.model == "DISTMULT":
            return x * r
        if self.model.startswith("TRANSE"):
            return x - r if conj else x + r
        a, b = x[:, :HALF], x[:, HALF:]
        c, d = r[:, :HALF], r[:, HALF:]
        if self.model == "ROTATE":
            c, d = torch.cos(c), torch.sin(c)
        d = -d if conj else d
        return torch.cat([a * c - b * d, a * d + b * c], 1)

    def away(self, a, b):
        """Return distances."""
        if self.model == "ROTATE":
            squares = (a[..., :HALF] - b[..., :HALF]) ** 2 + (a[..., HALF:] - b[..., HALF:]) ** 2
            return (squares + 1e-20).sqrt().sum(-1)
        if self.model == "TRANSE_L1":
            return (a - b).abs().sum(-1)
        return ((a - b) ** 2).sum(-1).sqrt()

    def scores(self, query, answer, other):
        """Return the scores of the answers and of the negatives."""
        if not self.distance:
            return (query * answer).sum(1), query @ other.T
        if self.model == "ROTATE" or self.compiled:
            return -self.away(query, answer), -self.away(query[:, None], other[None])
        power = 1.0 if self.model == "TRANSE_L1" else 2.0
        return -self.away(query, answer), -torch.cdist(query, other, p=power)

    def contrast(self, query, answer, other):
        """Return the loss without a copy of the scores."""
        positive, scores = self.scores(query, answer, other)
        return (torch.logaddexp(positive, scores.logsumexp(1)) - positive).sum()

    def cross_entropy(self, query, answer, other):
        """Return the loss in the usual way."""
        positive, scores = self.scores(query, answer, other)
        target = torch.zeros(len(query), dtype=torch.long, device=DEVICE)
        logits = torch.cat([positive[:, None], scores], 1)
        return functional.cross_entropy(logits, target, reduction="sum")

    def step(self):
        """Train one batch."""
        h, r, t = draw(EDGES, NODES), draw(EDGES, len(self.relations)), draw(EDGES, NODES)
        rows = torch.cat([h, t, *(draw(NEGATIVES, NODES) for _ in range(self.sides))])
        x, y = self.nodes[rows].requires_grad_(), self.relations[r].requires_grad_()
        xh, xt, *others = x.split([EDGES, EDGES] + [NEGATIVES] * self.sides)
        both = (xh, xt, others[0], False), (xt, xh, others[-1], True)
        for one, answer, other, conj in both[: self.sides]:
            query = self.times(one, y, conj)
            # Back to the queries and rows of a piece, and from all of them in one pass further.
            ends = [each.detach().requires_grad_() for each in (query, answer, other)]
            for first in range(0, EDGES, self.piece):
                part = slice(first, first + self.piece)
                with torch.autocast("cuda") if self.half else contextlib.nullcontext():
                    loss = self.compare(ends[0][part], ends[1][part], ends[2])
                loss.backward()
            slopes = [end.grad for end in ends]
            torch.autograd.backward([query, answer, other], slopes, retain_graph=True)
        update(self.nodes, self.states[0], rows, x.grad)
        if self.model != "DOT":
            update(self.relations, self.states[1], r, y.grad)


def wait():
    """Wait for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def median(job):
    """Return the median seconds of a step."""
    steps, found = Steps(*job), []
    for number in range(2 + given["steps"]):
        wait()
        begun = CLOCK()
        steps.step()
        wait()
        if number > 1:
            found.append(CLOCK() - begun)
    return statistics.median(found)


print(json.dumps([median(job) for job in given["jobs"]]))
