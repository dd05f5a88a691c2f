"""Asking the system for tiles of AMX."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import pytest

from optc.system.hardware import tiles
from optc.system.hardware.tiles import tiles_refusal


class _System:
    def __init__(self, result: int) -> None:
        self.asked: tuple[int, ...] = ()
        self._result = result

    def syscall(self, *numbers: int) -> int:
        self.asked = numbers
        ctypes.set_errno(22)
        return self._result


@pytest.mark.parametrize(("result", "refusal"), [(0, ""), (-1, "Invalid argument")])
def test_asks_for_tiles(monkeypatch: pytest.MonkeyPatch, result: int, refusal: str) -> None:
    system = _System(result)

    def library(name: Any, use_errno: bool) -> _System:
        assert name is None
        assert use_errno
        return system

    monkeypatch.setattr(tiles.ctypes, "CDLL", library)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert tiles_refusal.__wrapped__() == refusal
    assert system.asked == (158, 0x1023, 18)


def test_other_processors_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert tiles_refusal.__wrapped__() == "no processor of x86_64"


def test_this_system_answers() -> None:
    assert tiles_refusal() == tiles_refusal()
