"""The driver: one compile from a model folder to a proven artifact."""

from optc.driver.compiling.flow import compile

__all__ = ["compile"]
