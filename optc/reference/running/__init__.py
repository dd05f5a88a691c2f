"""What a reference holds while it runs: hidden states of windows, tiles of the head."""
