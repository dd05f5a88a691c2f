"""From what a model writes to what it says, thinks and calls, piece by piece as it comes."""
