"""Compiles models that become several engines of named tensors, one for each part."""
