"""Rows that are looked up in tables, by tokens."""
