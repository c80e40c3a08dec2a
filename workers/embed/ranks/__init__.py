"""A training on several ranks: rounds, partitions that change hands, relations kept in step."""
