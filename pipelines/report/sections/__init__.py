"""What a page about a run shows of its stages: a section for each kind of output."""
