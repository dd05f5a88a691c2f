"""A speed as a budget: the pace at which the machine reads is measured where it is not stated."""

from __future__ import annotations

import pytest

from optc.compiling.resolving import budget as module
from optc.compiling.resolving.budget import measured_budget
from optc.passes.quantize.budget.amounts import Budget
from optc.proof.roofline import this_machine
from optc.proof.roofline.ceilings import Ceiling


class _Meter:
    def ceilings(self) -> dict[str, Ceiling]:
        return {"read": Ceiling(48.126e9, 40e9), "int8": Ceiling(1e12, 1e12)}


def test_a_speed_gets_the_pace_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(this_machine, "measure_machine", lambda w: asked.append(w) or _Meter())
    text = measured_budget(" 40tok/s ")
    assert text == "40tok/s@48.13GB/s"
    assert asked == [module.WHERE]
    assert measured_budget("40tok/s,prune") == "40tok/s@48.13GB/s,prune"
    assert float(Budget.read(text, "here").bandwidth) == 48.13e9


@pytest.mark.parametrize("text", ["3.5bpw", "6.5MB", "40tok/s@50GB/s", "3bpw,prune", "fast"])
def test_nothing_else_is_measured(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "measure_machine", None)
    assert measured_budget(text) == text
