"""Files that commands write beside their output."""
