"""From an ONNX graph to a `Program`: which kernel computes each node."""
