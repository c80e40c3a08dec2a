"""A training run on several ranks: rounds, partitions that change hands, relations kept in step."""
