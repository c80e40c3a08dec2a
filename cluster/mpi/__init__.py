"""MPI worlds of Dask workers."""
