"""``--recipe auto``: which recipe is the fastest, or smallest, whose engine holds the gates."""
