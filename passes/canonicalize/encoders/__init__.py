"""Encoders of text: from named tensors with padding to packed rows (`pack-rows`)."""
