"""Paged attention of ragged rows over float and quantized KV."""
