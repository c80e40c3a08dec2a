"""Where the workers are: this machine, or a scheduler that someone else started."""
