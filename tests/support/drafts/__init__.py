"""Folders of what drafts tokens for a model."""
