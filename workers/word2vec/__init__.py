"""What a rank does of ``penstock word2vec``: its corpus, its training loop, its checkpoints."""
