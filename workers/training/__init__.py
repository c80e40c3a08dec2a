"""Training: one loop, which drives the trainers of gnn, word2vec and embed."""
