"""Passes and pipelines: the base class, ordering, running, instruments."""
