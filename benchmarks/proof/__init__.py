"""Results of compiles: quality, and TensorRT builds."""
