"""Types of keys and values that have no kernel, simulated."""
