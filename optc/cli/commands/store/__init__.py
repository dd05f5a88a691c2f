"""Commands about artifacts by name: ``optc list``, ``rm``, ``push`` and ``pull``."""
