"""Structured output: text that a JSON schema, regular expression, grammar or choice describes."""
