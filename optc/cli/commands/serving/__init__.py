"""``optc serve``: its options, models and keys."""
