"""Evaluation of vectors: ranks of held-out edges' answers, and the best answers to questions."""
