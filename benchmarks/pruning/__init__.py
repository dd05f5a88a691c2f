"""The loss from pruning, by method and amount."""
