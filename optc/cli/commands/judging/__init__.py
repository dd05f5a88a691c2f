"""Commands that judge what there is: ``optc diff``."""
