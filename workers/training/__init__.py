"""Training: one loop, which gnn, word2vec and embed each give a trainer."""
