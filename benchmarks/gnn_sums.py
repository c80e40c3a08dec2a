"""A GCN's sum over neighbours on a GPU: Penstock's kernel, and cuSPARSE with a cached plan."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np
from graphs import Data
from harness import Timed, on_gpu

from penstock.kernels.gnn_rules import ScaledCSR

WIDTH, CHECKED = 32, 1000
ALGORITHMS = {"default": 0, "CSR_ALG1": 4, "CSR_ALG2": 6, "CSR_ALG3": 12}  # of cusparseSpMM


class Sums:
    """Sums of 32 values of each node's neighbours and of itself, normalised by degrees."""

    def __init__(self, made: Data) -> None:
        self.made = made

    def prepare(self) -> None:
        """Upload the graph, and random values of nodes."""
        import cupy as cp

        if hasattr(self, "block"):
            return
        indptr, indices = (
            cp.asarray(each) for each in (self.made.csr.indptr, self.made.csr.indices)
        )
        nodes = len(indptr) - 1
        self.scale = (1 / cp.sqrt(cp.diff(indptr) + 1)).astype(cp.float32)
        itself = cp.ones(nodes, cp.float32)
        self.block = ScaledCSR(indptr, indices, nodes, left=self.scale, diagonal=itself)
        self.x = cp.random.default_rng(0).standard_normal((nodes, WIDTH), dtype=cp.float32)

    def ours(self) -> Timed:
        """Scale the rows, and sum."""
        import cupy as cp

        from penstock.kernels.cuda import activation, aggregate

        self.prepare()
        nodes, scaled, out = len(self.x), cp.empty_like(self.x), cp.full_like(self.x, cp.nan)

        def work() -> None:
            activation.scale_rows(self.x, self.scale, scaled, 0, nodes)
            aggregate.gather(self.block, scaled, out, 0, nodes)

        return Timed(on_gpu(work, 20, warm=3).seconds, out)

    def cusparse(self) -> Timed:
        """Multiply by the normalised matrix, by the fastest algorithm."""
        import cupy as cp
        from cupy.cuda.device import get_cusparse_handle
        from cupy_backends.cuda.libs import cusparse
        from cupyx.cusparse import SpMatDescriptor

        self.prepare()
        matrix, out = self.matrix(), cp.full_like(self.x, cp.nan)
        a = SpMatDescriptor.create(matrix)
        b, c = (
            cusparse.createDnMat(*each.shape, WIDTH, each.data.ptr, 0, cusparse.CUSPARSE_ORDER_ROW)
            for each in (self.x, out)
        )
        one, none = np.ones(1, np.float32), np.zeros(1, np.float32)
        begin = get_cusparse_handle(), 0, 0, one.ctypes.data, a.desc, b, none.ctypes.data, c, 0
        plan = ctypes.CDLL("libcusparse.so.12").cusparseSpMM_preprocess  # CuPy has loaded it
        plan.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 5),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p),
        ]
        found = {}
        for name, number in ALGORITHMS.items():
            how = *begin, number
            buffer = cp.empty(max(cusparse.spMM_bufferSize(*how), 1), cp.int8)
            if plan(*how, buffer.data.ptr):
                continue  # an algorithm without a plan for these operands
            work = partial(cusparse.spMM, *how, buffer.data.ptr)
            found[name] = on_gpu(work, 20, warm=3).seconds
        print(f"cuSPARSE: {found}")
        return Timed(min(found.values()), out)

    def matrix(self) -> Any:
        """Return the matrix with the edges of nodes to themselves, for cuSPARSE."""
        import cupy as cp
        from cupyx.scipy import sparse

        nodes, indptr = self.block.rows, self.block.indptr.astype(cp.int32)
        ones = cp.ones(self.block.edges, cp.float32)
        plain = sparse.csr_matrix((ones, self.block.indices, indptr), (nodes, nodes))
        matrix = plain + sparse.identity(nodes, dtype=cp.float32, format="csr")
        matrix.data *= self.scale[matrix.tocoo().row] * self.scale[matrix.indices]
        return matrix

    def check(self, values: dict[str, Any]) -> None:
        """Compare with cuSPARSE, and some rows with NumPy."""
        import cupy as cp

        for found in values.values():
            assert float(cp.abs(found - values["ours"]).max()) < 1e-3
        scale, x = self.scale.get().astype(np.float64), self.x.get()
        csr = self.made.csr
        for row in np.random.default_rng(0).choice(csr.rows, CHECKED):
            near = np.append(csr.indices[csr.indptr[row] : csr.indptr[row + 1]], row)
            truth = scale[row] * (scale[near, None] * x[near]).sum(0)
            np.testing.assert_allclose(values["ours"][row].get(), truth, rtol=1e-4, atol=1e-4)
