"""Python's collector looks at new objects alone, in tests that ask for it again and again.

A worker holds a million objects of what it has imported and of other tests' fixtures; to walk them
takes a tenth of a second and more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def only_new_objects() -> Iterator[None]:
    """What there is when the module begins is left out until it ends; imported by modules of tests.

    Objects that were left out before, as those of imports are, stay so."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()
