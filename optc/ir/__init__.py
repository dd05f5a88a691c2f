"""The IR: lazy weights, graph helpers, and the functions of the domain ``optc``."""
