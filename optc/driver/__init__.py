"""The driver: one compile from a model folder to a proven artifact."""

from optc.driver.compiling.compile import compile

__all__ = ["compile"]
