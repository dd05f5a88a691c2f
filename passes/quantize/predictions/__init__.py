"""What passes of quantization will take, before they run: memory, and how much text."""
