"""Runs encoder-decoders that write down speech."""
