"""Requests together: batches, prefixes, drafts, simulation, other programs beside."""
