"""An engine under random traffic for an hour: outputs, blocks and memory are checked."""
