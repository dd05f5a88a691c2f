"""What docs/ says of itself: forms, numbers and links."""
