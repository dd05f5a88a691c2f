"""A model as people publish it comes in: files, formats and families become one `onnx_ir.Model`."""
