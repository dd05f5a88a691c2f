"""Paces turn work into time."""

from __future__ import annotations

import pytest

from optc.driver.predictions import paces as paces_module
from optc.driver.predictions.paces import Paces, assumed_paces, measured_paces
from optc.pipeline.work import Work


def test_kinds_of_work_come_one_after_the_other() -> None:
    paces = Paces(float32=10.0, bfloat16=20.0, int8=40.0, float64=5.0, steps=100.0, alone=60.0)
    work = Work(float32=30, bfloat16=30, int8=60, float64=30, steps=30, alone=30)
    assert paces.seconds(work) == pytest.approx(12.8)
    assert paces.seconds(Work()) == 0


def test_work_adds_up() -> None:
    assert Work(1, 2, 3, 4, 5) + Work(float64=1) == Work(1, 2, 3, 5, 5)


def test_work_is_multiplied() -> None:
    assert Work(1, 2, 3, 4, 5, 6) * 2 == Work(2, 4, 6, 8, 10, 12)


def test_two_cores_take_half_the_time() -> None:
    work = Work(1e12, 1e12, 1e12, 1e12, 1e12)
    assert assumed_paces(1).seconds(work) == pytest.approx(2 * assumed_paces(2).seconds(work))


def test_what_one_thread_does_alone_takes_as_long_on_any_number_of_cores() -> None:
    work = Work(alone=1e12)
    assert assumed_paces(1).seconds(work) == assumed_paces(4).seconds(work)


def test_products_are_measured_here() -> None:
    paces = measured_paces()
    assert paces.measured
    assert not assumed_paces().measured
    # a product in float64 has half as many multiply-adds an instruction
    assert 0 < paces.float64 < paces.float32 < 1e14
    assert paces.bfloat16 > 0
    assert paces.int8 > 0


@pytest.mark.parametrize(
    ("layer", "measured"),
    [((96, 64), (96, 64)), ((9000, 64), (2048, 64)), ((64, 9000), (64, 2048))],
)
def test_a_layer_is_measured_as_it_is_named_and_large_ones_as_usual(
    layer: tuple[int, int], measured: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paces_module, "_pace", lambda run, amount: float(amount))
    rows, inputs = measured
    found = measured_paces(layer)
    assert found.float32 == 512 * rows * inputs
    assert found.float64 == inputs**3
    assert found.steps / assumed_paces().steps == 512 * 2048 * 2048 / assumed_paces().float32


def test_steps_are_no_faster_where_products_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces_module, "_pace", lambda run, amount: 1e6 * amount)
    found, usual = measured_paces(), assumed_paces()
    assert found.float32 > usual.float32
    assert (found.steps, found.alone) == (usual.steps, usual.alone)
