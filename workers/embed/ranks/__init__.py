"""Training on several ranks: rounds, partitions sent between ranks, synchronised relations."""
