"""The engine's thread, its process, and who waits for it."""
