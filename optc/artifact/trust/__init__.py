"""Where an artifact comes from, what is in it, and who vouches for it: files beside its own.

The manifest's digest covers none of them, so that an artifact keeps its identity when it is signed.
"""
