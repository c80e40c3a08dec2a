"""What vectors are worth: ranks of the answers to held-out edges, and answers to a question."""
