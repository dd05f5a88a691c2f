"""Child processes that tests start."""
