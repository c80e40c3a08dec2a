"""Who may be in which gang, and what is said of one that failed."""
