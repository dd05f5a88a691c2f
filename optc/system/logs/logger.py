"""Loggers of the library: ``optc`` and its children, one a module, which say nothing by themselves.

A program that wants to hear them gives ``logging.getLogger("optc")`` a handler and a level. INFO
are stages and loads, DEBUG single requests and files, ERROR an engine that failed.
"""

from __future__ import annotations

import logging

#: Parent of all loggers of the library.
ROOT = "optc"


def logger(name: str) -> logging.Logger:
    """The logger of a module, ``__name__``."""
    root = logging.getLogger(ROOT)
    if not root.handlers:  # without any, Python prints warnings and errors on stderr
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)
