"""The status page at ``/``: one document that loads nothing but ``/status``."""
