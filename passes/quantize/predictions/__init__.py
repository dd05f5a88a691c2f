"""What passes of quantization will take, before they run: memory, work and how much text."""
