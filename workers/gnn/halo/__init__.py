"""Exchanges between the ranks of a training run: rows of ghosts, and gradients."""
