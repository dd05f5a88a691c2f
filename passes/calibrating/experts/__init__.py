"""What quantization needs to know of experts."""
