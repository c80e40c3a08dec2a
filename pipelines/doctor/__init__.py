"""``penstock doctor``: what a machine has, what that allows, and how to fix each lack."""
