"""Gates: divergence and speed of an engine against the reference, and the verdicts."""
