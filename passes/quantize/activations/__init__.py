"""The bits of activations, by layers."""
