"""The facts of experts that quantization needs."""
