"""The origin, contents and signatures of an artifact: files beside its own.

The manifest's digest covers none of them, so that an artifact keeps its identity when it is signed.
"""
