"""Signatures that jobs compile by default, by kernel in kernels/cpu; ahead.py reads them.

The last kernel of a job comes first. tests/workers/test_ahead.py describes how to make the lists.
"""

_EPILOGUE = "(f4:1! f4:2! i8:1! i8 b1 b1 i8 b1 u8 i8 i8 u4 f4 f4 f4)"
_NEIGHBOURS = "(i8:1! i4:1! f4:1! f4:1! f4:1! f4:1! i8 b1 b1 b1 b1 f4)"
_SCRATCH = (
    "(f4:1 f4:1 f4:1 f4:1 f4:1 f4:1 i8:1 i8:1 i8:1 i8:1 f4:1 i8:1 i8:1 i8:1 i8:1 i8:1 i8:1 i8:1 "
    "i8:1 i8:1 i8:1 u4:1 i8:1)"
)

KERNELS = {
    "centrality": {
        "centrality.folded.add_folded_betweenness": "i8:1! i8:1! i4:1! i8:1 i8:1 b1 f8:1 f8:1",
        "centrality.breadth_first.add_paths": "i8:1! i8:1! i4:1! i8:1 i8:1 i8:1 f8:1 f8:1 f8:1",
    },
    "word2vec train": {
        "word2vec.training._train": "(f4:2 f4:2) (i4:1! i8:1! f4:1!) u8 (i8 i8) "
        f"(u4:1! i4:1! u4:1!) b1 (i8 i8 i8 i8 i8 u8) b1 {_SCRATCH}",
    },
    "gnn train": {
        "activation._epilogue_backward": f"f4:2 f4:2! {_EPILOGUE} i8 i8",
        "loss._cross_entropy": "(f4:2! i1:1! f4 f4:2 b1 f8:2) i4:1! i8 i8",
        "activation._apply_epilogue": f"f4:2! f4:2 {_EPILOGUE} i8 i8 b1",
        "activation._scale_rows": "f4:2! f4:1! f4:2 i8 i8 b1",
        "optimizer._adam": "f4:1 f4:1 f4:1 f4:1 (f4 f4 f4 f4 f4 f4 f4 f4 f4 f4)",
        "aggregate._gather": f"{_NEIGHBOURS} f4:2! f4:2 {_EPILOGUE} b1 i8 i8",
    },
    "embed train": {
        "embed.rank._count": "i8 (f4:2 f4:2 f8:1 i8:1) (f4:2 i8 f8) (i8:1 i4:1) i8:2",
        "embed.rank._queries": "i8 f8 f4:2 f8:2 i8:1 i8:1 f4:2",
        "embed.rank._answer_scores": "i8 f4:2 f4:2 f8:1",
        "embed.rank._longest": "f4:2",
        "embed.piece.finish_edges": "i8 f4 (f4:2 f4:2) (i8:1 i8:1 i8:1) (f4:2 f4:1 f4:1 f4:2) "
        "(f4:2 f4:2 f4:2) (i8 f4 f4) f8:1 b1 b1",
        "embed.update._change": "i8 (f4:2 f4:2) (i8:1 i8:1 i8:1) f4:2 i8 i8 (f4 f4 f4 f4 f4 f4 f4)",
        "embed.loss._tile_loss": "f4:2 f4:1 i8 f4 f4 f8:1 f4:1 none f4:1 b1 b1 none none",
        "embed.piece.make_queries": "i8 f4 (f4:2 f4:2) (i8:1 i8:1 i8:1) f4:2 f4:1",
        "embed.piece.leave_out": "f4:2 i8:1 i8 i8:1 i8:1",
        "embed.piece.gather_rows": "f4:2 i8:1 f4:2",
        "embed.update._group": "i8:1 i4:1 i4:1 i8:1 i8:1 i8:1",
        "embed.negatives._draw": "u8 u8 i8:1 i8:1 f4:1 i4:1 i4:2",
        "buckets._mix_edges": "(i4:1! i4:1! i4:1! f4:1) (i8:1 i8:1 i8:1 i8:1 u8:1) u8 i8 i8 "
        "(i4:1 i4:1 i4:1 f4:1)",
        "buckets._shuffle_edges": "(i4:1 i4:1 i4:1 f4:1) u8 i8",
        "buckets._scatter_edges": "i8:1 i8 (i4:1! i4:1! f4:1) i8:1 i4:1 b1 i8:1 "
        "(i4:1 i4:1 i4:1 f4:1) i8 u8 i8",
    },
}
