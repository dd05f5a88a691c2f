"""Runs encoder-decoders that turn a text into another one."""
