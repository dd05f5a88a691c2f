"""Artifacts as OCI artifacts: https://github.com/opencontainers/image-spec, v1.1.

A file is a layer, whose annotation ``org.opencontainers.image.title`` is its path, as oras writes
and reads them.
"""
