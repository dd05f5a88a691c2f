"""What the machine can do at most, and where a step's time goes."""
