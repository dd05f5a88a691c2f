"""Engines that draft for another one: draft models and self-drafts."""
