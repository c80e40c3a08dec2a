"""What a user asks for: a module a job, each a Dask graph, and the command line on top."""
