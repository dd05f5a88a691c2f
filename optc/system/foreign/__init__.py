"""Data that others made: files of theirs, and packages that read them."""
