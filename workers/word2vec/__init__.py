"""A rank's part of ``penstock word2vec``: its corpus, its trainer, its checkpoints."""
