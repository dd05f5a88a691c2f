"""Keeps what PyTorch writes while a model is imported out of places that others can prepare."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from optc.system.scratch import Scratch

#: Without it PyTorch's compiler makes a folder called after the user in the folder of temporary
#: files, where another user may have put one of that name.
_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def private_caches() -> Iterator[None]:
    """While it lasts, caches of PyTorch are in a folder that only this user can read or write and
    that goes away at the end; unless the user named one."""
    if _VARIABLE in os.environ:
        yield
        return
    with Scratch("import") as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE, None)
