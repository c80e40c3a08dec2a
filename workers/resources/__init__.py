"""What a worker holds: its device, memory pool, caches and scratch disk."""
