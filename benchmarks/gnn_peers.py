"""PyG's side of bench_gnn.py, for a Python that has torch and torch_geometric.

    PYTHON -P gnn_peers.py epochs FOLDER WAY RUNS THREADS DEVICE (cpu or gpu)
    PYTHON -P gnn_peers.py accuracy FOLDER KIND THREADS

Reads FOLDER/peer.npz and prints one line of JSON. WAY is "tuned", plain PyTorch (see Tuned), or
PyG over "edge_index-cached" or "csr-cached" (a torch.sparse_csr adjacency), normalised once, with
the suffix "-sparse" to hold the features as torch.sparse_csr. The peak is
that of the process, Python and torch included; on a GPU torch's memory there, or only
"out_of_memory" if the memory does not suffice.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


def peak():
    """Return the peak bytes of this process."""
    # Not ru_maxrss, which includes the parent's memory at the fork.
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return 1024 * int(status.split()[0])


def read(folder):
    """Return the file's arrays as torch tensors; features stay in NumPy."""
    with np.load(Path(folder) / "peer.npz") as file:
        return {name: file[name] for name in file}


def features_of(data, *, sparse, device="cpu"):
    """Return the features, dense as PyG's own data sets give them, or as a CSR tensor."""
    if "features" in data:
        return torch.from_numpy(data["features"]).to(device)
    parts = (torch.from_numpy(data[f"feature_{part}"]) for part in ("indptr", "indices", "data"))
    shape = len(data["labels"]), int(data["width"])
    matrix = torch.sparse_csr_tensor(*parts, size=shape)
    return (matrix if sparse else matrix.to_dense()).to(device)


def edges_of(data, way, device="cpu"):
    """Return the edges: a row of the CSR gathers its columns."""
    indptr, indices = (torch.from_numpy(data[name]) for name in ("indptr", "indices"))
    if way == "csr":
        # 32-bit indices, which are faster than 64-bit ones.
        arrays = indptr.int(), indices.int(), torch.ones(len(indices))
        return torch.sparse_csr_tensor(*arrays, size=[len(indptr) - 1] * 2).to(device)
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return torch.stack([indices.long(), rows]).to(device)


class Gcn(torch.nn.Module):
    """Graph convolutions with ReLU between them, with given weights."""

    def __init__(self, data):
        super().__init__()
        count = sum(name.startswith("weight") for name in data)
        self.layers = torch.nn.ModuleList()
        for number in range(count):
            weight = torch.from_numpy(data[f"weight{number}"])
            layer = GCNConv(*weight.shape, cached=True)
            with torch.no_grad():
                layer.lin.weight.copy_(weight.T)
                layer.bias.zero_()
            self.layers.append(layer)

    def forward(self, x, edges):
        """Return logits."""
        for layer in self.layers[:-1]:
            x = layer(x, edges).relu()
        return self.layers[-1](x, edges)


class Product(torch.autograd.Function):
    """The product of a constant CSR matrix, whose transpose is made once, and a dense one."""

    @staticmethod
    def forward(ctx, matrix, transpose, dense):
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx, slopes):
        return None, None, ctx.transpose @ slopes


def transposed(matrix):
    """Return the transpose of a CSR tensor, as CSR."""
    return matrix.transpose(0, 1).to_sparse_csr()


class Tuned(torch.nn.Module):
    """The same network in plain PyTorch, as its authors would tune it.

    CSR with 32-bit indices, normalised once, with its transpose for the backward pass; the first
    aggregation of dense features once for all epochs; the narrower of a layer's input and output is
    aggregated; sparse features by CSR products, with their transpose.
    """

    def __init__(self, data, x, device):
        super().__init__()
        indptr, indices = (
            torch.from_numpy(data[name]).to(device) for name in ("indptr", "indices")
        )
        nodes = len(indptr) - 1
        rows = torch.repeat_interleave(torch.arange(nodes, device=device), indptr.diff())
        loops = torch.arange(nodes, device=device)
        rows, columns = torch.cat([rows, loops]), torch.cat([indices.long(), loops])
        scale = torch.bincount(rows, minlength=nodes).float().rsqrt()  # degrees of rows, as GCNConv
        ends = torch.stack([rows, columns])
        made = torch.sparse_coo_tensor(ends, scale[rows] * scale[columns], [nodes, nodes])
        self.matrix = narrow(made.coalesce().to_sparse_csr())
        self.transpose = narrow(transposed(self.matrix))
        self.sparse = x.layout == torch.sparse_csr
        self.x = x if self.sparse else self.matrix @ x
        self.turned = transposed(x) if self.sparse else None
        count = sum(name.startswith("weight") for name in data)
        weights = [torch.from_numpy(data[f"weight{number}"]) for number in range(count)]
        self.weights = torch.nn.ParameterList(weights)
        self.biases = torch.nn.ParameterList([torch.zeros(each.shape[1]) for each in weights])

    def forward(self):
        """Return logits."""
        x = self.x
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if number == 0 and not self.sparse:
                x = x @ weight
            elif number == 0:
                x = Product.apply(
                    self.matrix, self.transpose, Product.apply(x, self.turned, weight)
                )
            elif weight.shape[0] < weight.shape[1]:
                x = Product.apply(self.matrix, self.transpose, x) @ weight
            else:
                x = Product.apply(self.matrix, self.transpose, x @ weight)
            x = x + bias
            if number + 1 < len(self.weights):
                x = x.relu()
        return x


def narrow(matrix):
    """Return a CSR tensor with 32-bit indices, which are faster than 64-bit ones."""
    parts = matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values()
    return torch.sparse_csr_tensor(*parts, size=matrix.shape)


def epochs(folder, way, runs, threads, device):
    """Return losses, seconds and peak of full-batch epochs with Adam."""
    torch.set_num_threads(int(threads))
    device = "cuda" if device == "gpu" else device
    data = read(folder)
    way, *how = way.split("-")
    tuned = way == "tuned"
    x = features_of(data, sparse=tuned or "sparse" in how, device=device)
    labels = torch.from_numpy(data["labels"]).long().to(device)
    train = torch.from_numpy(data["train"]).to(device)
    if tuned:
        model, given = Tuned(data, x, device).to(device), ()
    else:
        model, given = Gcn(data).to(device), (x, edges_of(data, way, device))
    data.clear()
    adam = torch.optim.Adam(model.parameters(), lr=0.01, fused=device == "cuda")
    seconds, losses = [], []
    for _ in range(int(runs)):
        begun = time.perf_counter()
        adam.zero_grad()
        loss = functional.cross_entropy(model(*given)[train], labels[train])
        loss.backward()
        adam.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begun)
    most = peak() if device == "cpu" else torch.cuda.max_memory_reserved()
    return {"seconds": seconds, "losses": losses, "peak": most}


def epochs_that_fit(folder, way, runs, threads, device):
    """Return the result of epochs(), or only that the GPU's memory did not suffice."""
    try:
        return epochs(folder, way, runs, threads, device)
    except RuntimeError as error:
        # torch's own error, and those of cuSPARSE and cuBLAS.
        texts = "out of memory", "ALLOC_FAILED", "INSUFFICIENT_RESOURCES"
        if device == "cpu" or not any(text in str(error) for text in texts):
            raise
        return {"out_of_memory": True}


def dropped(x, share, training):
    """Return features with some dropped; in a CSR tensor, zeros stay."""
    if x.layout != torch.sparse_csr:
        return functional.dropout(x, share, training)
    values = functional.dropout(x.values(), share, training)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, size=x.shape)


class Classifier(torch.nn.Module):
    """Two layers of the usual models for citation networks."""

    def __init__(self, kind, width, classes):
        super().__init__()
        self.act, self.drop = functional.relu, 0.5
        if kind == "gat":
            self.act, self.drop = functional.elu, 0.6
            first = GATConv(width, 8, heads=8, dropout=0.6)
            second = GATConv(64, classes, heads=1, dropout=0.6)
        else:
            make = {"gcn": GCNConv, "sage": SAGEConv}[kind]
            first, second = make(width, 64), make(64, classes)
        self.layers = torch.nn.ModuleList([first, second])

    def forward(self, x, edges):
        """Return logits."""
        x = self.act(self.layers[0](dropped(x, self.drop, self.training), edges))
        x = functional.dropout(x, self.drop, self.training)
        return self.layers[1](x, edges)


def accuracy(folder, kind, first, step):
    """Return the test accuracy of the epoch with the least validation loss, of every such seed."""
    torch.set_num_threads(1)
    data = read(folder)
    # SAGE gathers features as they are, which PyG does of dense ones only: fastest over a matrix.
    x = features_of(data, sparse=kind != "sage")
    edges = edges_of(data, "csr" if kind == "sage" else "edge_index")
    labels = torch.from_numpy(data["labels"]).long()
    classes, found = int(labels.max()) + 1, []
    for seed in range(int(first), len(data["roles"]), int(step)):
        roles = torch.from_numpy(data["roles"][seed])
        torch.manual_seed(seed)
        model = Classifier(kind, x.shape[1], classes)
        rate = 0.005 if kind == "gat" else 0.01
        adam = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4)
        best = (float("inf"), 0.0)
        for _ in range(200):
            model.train()
            adam.zero_grad()
            train = roles == 0
            functional.cross_entropy(model(x, edges)[train], labels[train]).backward()
            adam.step()
            model.eval()
            with torch.no_grad():
                logits = model(x, edges)
            valid, test = roles == 1, roles == 2
            loss = functional.cross_entropy(logits[valid], labels[valid]).item()
            if loss < best[0]:  # as penstock gnn train keeps weights
                best = loss, (logits[test].argmax(1) == labels[test]).float().mean().item()
        found.append(best[1])
    return {"accuracy": found}


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    print(json.dumps({"epochs": epochs_that_fit, "accuracy": accuracy}[task](*arguments)))
