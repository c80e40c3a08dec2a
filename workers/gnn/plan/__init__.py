"""From a model and a graph to the computation and its cost."""
