"""Counters begin at zero."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.request_metrics import RequestMetrics


@pytest.mark.parametrize("fresh", [EngineMetrics(), RequestMetrics(10.0)])
def test_counters_begin_at_zero(fresh: Any) -> None:
    values = {f.name: getattr(fresh, f.name) for f in fields(fresh)}
    counted = {name: value for name, value in values.items() if type(value) is int}
    assert counted
    assert set(counted.values()) == {0}
