"""Receipts of answers, and their replay on another artifact.

An answer depends on the artifact, the prompt, the sampling parameters and the seed, and on nothing
else that happens in the engine: so these few, with a hash of the answer, are a receipt that anybody
with the artifact can check.
"""
