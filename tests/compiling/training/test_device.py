"""Devices and precisions: what is chosen, and what is not there."""

from __future__ import annotations

import pytest
import torch

from optc.compiling.training import device
from optc.compiling.training.device import Place, choose_device, choose_precision, seconds_of
from optc.errors import UnavailableError


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", 1) == "cpu"
    with pytest.raises(UnavailableError, match="--device: PyTorch finds no GPU"):
        choose_device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", 1) == "cuda"
    assert choose_device("cpu", 1) == "cpu"


def test_the_faster_precision_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    now = 0.0
    cost = {"float32": 3.0, "bfloat16": 1.0}

    def work(place: Place) -> None:
        nonlocal now
        now += cost[place.precision]
        next(clock)

    monkeypatch.setattr(device.time, "thread_time", lambda: now)
    assert choose_precision("auto", "cpu", work).precision == "bfloat16"
    cost["bfloat16"] = 4.0
    assert choose_precision("auto", "cpu", work).precision == "float32"
    assert choose_precision("bfloat16", "cpu", work).precision == "bfloat16"


def test_products_are_of_the_precision() -> None:
    x = torch.ones(2, 2)
    with Place("cpu", "bfloat16").autocast():
        assert (x @ x).dtype == torch.bfloat16
        with Place("cpu", "float32").autocast():
            assert (x @ x).dtype == torch.float32


def test_a_cpu_is_timed_by_its_processor_and_a_gpu_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = {"thread_time": iter([1.0, 3.0]), "perf_counter": iter([10.0, 17.0])}
    for name, ticks in clocks.items():
        monkeypatch.setattr(device.time, name, ticks.__next__)
    assert seconds_of(lambda: None, "cpu") == 2.0
    assert seconds_of(lambda: None, "cuda") == 7.0
