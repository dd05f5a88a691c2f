"""The decoder that a configuration describes, alone or inside of more: its part of the checkpoint,
its buffers, how long its sequences may be."""
