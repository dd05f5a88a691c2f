"""The command line: ``optc``. Command modules are imported when they are asked for."""
