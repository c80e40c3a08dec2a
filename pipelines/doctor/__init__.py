"""``penstock doctor``: what a machine has, what that allows, and what would mend each lack."""
