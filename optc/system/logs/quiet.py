"""Keeps what libraries tell their own developers off a user's terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

#: Loggers whose warnings are about code of the libraries, or about what optc handles itself.
_LOGGERS = (
    "onnx_ir",
    "onnxscript",
    "torch.__trace",
    "torch._export",
    "torch.export",
    "torch.fx",
    "torch.onnx",
    "transformers",
)


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings, and without notes of libraries below errors."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
