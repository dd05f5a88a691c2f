"""State of a running reference: hidden states of windows, tiles of the head."""
