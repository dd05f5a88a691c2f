"""Serving in virtual time: the runtime's own scheduler over measured step times, no engine."""
