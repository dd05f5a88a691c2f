"""Limits of the operating system on this process."""
