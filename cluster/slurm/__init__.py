"""Clusters and jobs on SLURM."""
