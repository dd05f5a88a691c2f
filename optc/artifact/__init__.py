"""The artifact of what held: a folder that is written whole, checked, signed, shown and shared.

Its manifest says what it is for: `optc.artifact.tasks`.
"""
