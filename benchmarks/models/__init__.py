"""Models of named tensors: real files, random architectures, and the node tests of ONNX."""
