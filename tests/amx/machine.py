"""This machine as one that has AMX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from optc.system.hardware import target
from optc.system.hardware.machine import this_machine
from tests.amx.model import has_amx, lacking, model


@contextmanager
def amx_here() -> Iterator[None]:
    """Where the processor has no tiles, or the system withholds them, install the model of their
    instructions and describe the processor as one with them; skips a test where not even the
    instructions beside them are there."""
    reason = lacking()
    if reason:
        pytest.skip(reason)
    if has_amx():
        yield
        return
    model()
    described = target._described_features
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_described_features", lambda: described() | target.TILE_FEATURES)
        patch.setattr(target, "tiles_refusal", lambda: "")
        this_machine.cache_clear()
        yield
    this_machine.cache_clear()
