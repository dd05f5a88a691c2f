"""Commands that write checkpoints of other tools."""
