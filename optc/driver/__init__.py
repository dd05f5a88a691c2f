"""The driver: one compile from a model to a proven artifact."""

from optc.driver.compile import compile

__all__ = ["compile"]
