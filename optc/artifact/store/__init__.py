"""Artifacts by name: a folder of them on this machine, and copies in layouts and registries."""
