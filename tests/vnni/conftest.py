from __future__ import annotations

from collections.abc import Iterator

import pytest

from optc.backends.tvm.isa import Isa, isa_of
from optc.system.hardware import target
from optc.system.hardware.machine import this_machine
from tests.vnni.model import TARGET, has_vnni, lacking, model


@pytest.fixture
def vnni() -> Iterator[Isa]:
    """AVX-VNNI's instruction set, on a processor that has it or on the model of its products, and
    this machine described as one that has it."""
    if reason := lacking():
        pytest.skip(reason)
    if has_vnni():
        yield isa_of(TARGET)
        return
    model()
    described = target._described_features
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_described_features", lambda: described() | {"avx_vnni"})
        this_machine.cache_clear()
        yield isa_of(TARGET)
    this_machine.cache_clear()
