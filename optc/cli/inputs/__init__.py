"""Runs models whose inputs are files: arrays by name, sounds."""
