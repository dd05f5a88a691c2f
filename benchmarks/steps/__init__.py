"""How time and memory of steps and compiles grow."""
