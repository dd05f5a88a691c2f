"""Threads of NumPy's matrix products, where threads of ours do small ones side by side.

A product of OpenBLAS wakes its own threads and waits for them actively. Many small products from
several threads then take six times the processor time that they take with one thread each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Products of matrices in this process have one thread while the block runs.

    For the thread that starts and awaits the others: the number is the process's.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Found once, for the libraries that are loaded by then: NumPy's is."""
    import numpy as np  # noqa: F401 - loads its library
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
