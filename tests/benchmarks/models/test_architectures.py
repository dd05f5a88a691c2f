"""The list of architectures, and what a row gets."""

from __future__ import annotations

from collections import Counter

import torch

from benchmarks.models.architecture import Architecture, Example, Named
from benchmarks.models.architectures import EXACT, kinds, measured
from optc.system.sources.dim import Dim


def small() -> Example:
    x = torch.randn(2, 3)
    return Named(torch.nn.Linear(3, 4)).eval(), (x,), {"x": {0: Dim("batch", 1, 8)}}


def broken() -> Example:
    raise ValueError("its input is smoke")


def test_architectures_of_four_libraries_are_listed_once() -> None:
    found = kinds()
    assert len({(one.library, one.name, one.task) for one in found}) == len(found)
    counts = Counter(one.library for one in found)
    assert min(counts[name] for name in ("timm", "torchvision", "diffusers")) >= 8
    assert counts["transformers"] >= 100


def test_the_first_are_of_different_kinds() -> None:
    first = kinds()[:30]
    assert len({(one.library, one.task) for one in first}) == len(first)


def dead() -> Example:
    deaf = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Threshold(1e9, 0.0))
    return Named(deaf).eval(), (torch.randn(2, 3),), {"x": {0: Dim("batch", 1, 8)}}


def test_a_row_is_what_was_measured_or_the_reason() -> None:
    row = measured(Architecture("l", "ours", "none", "products-int8", small), EXACT, 200)
    assert row[EXACT]["error"] < 1e-6
    assert row["parameters"] == 16
    row = measured(Architecture("d", "ours", "none", "products-int8", dead), EXACT, 200)
    assert row["error"].startswith("build: ValueError: its outputs are not finite, or the same")
    row = measured(Architecture("b", "ours", "none", "products-int8", broken), EXACT, 200)
    assert row == {"error": "build: ValueError: its input is smoke"}
