from __future__ import annotations

from collections.abc import Iterator

import pytest

from optc.backends.tvm.isa import Isa, isa_of
from tests.amx.machine import amx_here
from tests.amx.model import TARGET


@pytest.fixture
def amx() -> Iterator[Isa]:
    """AMX's instruction set, on a processor that has it or on the model of its instructions."""
    with amx_here():
        yield isa_of(TARGET)
