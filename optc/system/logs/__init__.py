"""The library's logger."""
