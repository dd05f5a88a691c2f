"""What belongs to a model and lies beside it: heads, layers that draft, trained weights."""
