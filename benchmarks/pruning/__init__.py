"""What pruning loses, by method and amount."""
