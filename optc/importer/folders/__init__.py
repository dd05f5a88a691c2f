"""Folders of models that users name or that are made of something else."""
