"""The growth of time and memory of steps and compiles."""
