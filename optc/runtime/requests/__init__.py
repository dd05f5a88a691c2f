"""What callers ask for: requests are read, checked, and handed to the engine's thread."""
