"""Commands about who made an artifact: ``optc sign``."""
