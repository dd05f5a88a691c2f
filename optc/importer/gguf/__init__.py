"""GGUF files: tensors that are quantized in blocks, and a model's config and tokenizer beside."""
