"""Imports models that take and give named tensors: PyTorch modules, programs and ONNX files."""
