"""From a model and a graph to what will be computed, and what that costs."""
