"""One page about a run of a flow: a file of HTML that needs nothing else, and no network."""
