"""Vectors of ids: embeddings of words or nodes, from any program.

module       owns
vectors      ``Vectors``: ids and values, opened from any of the formats; looking ids up
store        Penstock's directory: vectors.json, part-*.parquet, vectors.npy; ``write_vectors``
tables       Parquet, and .npy with a file of ids
word2vec     the text and binary formats of word2vec, which gensim reads
"""

from penstock.pipelines.vectors.store import write_vectors
from penstock.pipelines.vectors.vectors import Vectors

__all__ = ["Vectors", "write_vectors"]
