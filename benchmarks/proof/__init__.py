"""What a compile gives: quality, and TensorRT builds."""
