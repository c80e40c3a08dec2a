"""The jobs: one module per job, each a Dask graph, and the command line on top."""
