"""Folders of encoders: what they say of texts, images and sounds, and of layers behind."""
