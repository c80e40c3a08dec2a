"""What runs inside one Dask worker."""
