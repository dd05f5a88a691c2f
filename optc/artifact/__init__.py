"""What held becomes an artifact: a folder that is written whole, checked, signed, shown and shared.

Its manifest says what it is for: `optc.artifact.tasks`.
"""
