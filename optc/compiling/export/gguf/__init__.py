"""An artifact's weights, settings and tokenizer as a GGUF file."""
