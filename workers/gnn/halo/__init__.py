"""What ranks of a training run exchange: rows of ghosts, and gradients."""
