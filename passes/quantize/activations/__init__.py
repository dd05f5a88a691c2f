"""How many bits activations have, by layers."""
