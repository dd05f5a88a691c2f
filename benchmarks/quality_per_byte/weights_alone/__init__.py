"""Weights alone, activations and KV in float32, on the example: what each quantizer loses."""
