"""The requests of callers: they are read, checked, and handed to the engine's thread."""
