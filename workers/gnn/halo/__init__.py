"""What ranks of a training exchange: rows of ghosts, and gradients."""
