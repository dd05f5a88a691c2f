"""What a token reads from the disk, against sums by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.proof.roofline import beyond_memory as module
from optc.proof.roofline.beyond_memory import DISK, beyond_memory, disk_bytes, disk_ceiling
from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.estimate import EngineEstimate, decode_work
from tests.runtime.support.toy import toy_spec

SPEC = toy_spec()
#: 1000 bytes of every step; 16 experts of 100 bytes, of which a token has 4; keys and values.
COSTS = StepCosts(
    "int8",
    {
        "dense": KernelCost(3, "int8", {"1": 1000.0}, {}),
        "experts": KernelCost(2, "int8", {"T:4of16": 100.0}, {}),
        "attention": KernelCost(1, "fp32", {"kv0": 7.0}, {}),
        "embedding": KernelCost(1, "fp32", {"T": 50.0}, {}),
    },
)
WHOLE = 2600


@pytest.mark.parametrize(
    ("resident", "read"),
    [
        (0, 1000 + 400),
        (600, 400 + 400),
        (1000, 400),
        (1400, 300),  # a quarter of the experts stay
        (2600, 0),
        (9999, 0),
    ],
)
def test_weights_of_every_step_stay_before_experts(resident: int, read: int) -> None:
    assert disk_bytes(COSTS, decode_work(SPEC, 10), resident) == read


def test_models_without_experts() -> None:
    costs = StepCosts("int8", {"dense": COSTS.kernels["dense"]})
    work = decode_work(SPEC, 10)
    assert [disk_bytes(costs, work, kept) for kept in (0, 300, 1000)] == [1000, 700, 0]


def test_the_bound_is_the_disks_rate_over_the_bytes() -> None:
    estimate = EngineEstimate(SPEC, WHOLE, COSTS)
    assert beyond_memory(estimate, 10, WHOLE) is None
    plain = beyond_memory(estimate, 10, 1000)
    assert plain == module.BeyondMemory(1000, 400)
    measured = beyond_memory(estimate, 10, 1000, {DISK: Ceiling(2000.0, 1500.0)})
    assert measured == module.BeyondMemory(1000, 400, 2000.0, 5.0)
    assert beyond_memory(estimate, 10, 1000, {"read": Ceiling(1.0, 1.0)}) == plain


def test_without_a_limit_the_memory_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = EngineEstimate(SPEC, WHOLE, COSTS)
    monkeypatch.setattr("optc.system.available.available_memory", lambda: 3000)
    assert beyond_memory(estimate, 10, None) is None
    monkeypatch.setattr("optc.system.available.available_memory", lambda: 2000)
    found = beyond_memory(estimate, 10, None)
    assert found is not None
    assert (found.resident_bytes, found.read_bytes) == (1000, 400)


def test_the_disk_is_that_of_the_largest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(b"123")
    (tmp_path / "folder").mkdir()
    read: list[Path] = []

    def rates(path: Path) -> list[float]:
        read.append(path)
        return [3.0, 1.0, 2.0]

    monkeypatch.setattr(module, "read_rates", rates)
    assert disk_ceiling(tmp_path) == Ceiling(3.0, 2.0)
    assert disk_ceiling(tmp_path / "small") == Ceiling(3.0, 2.0)
    assert read == [tmp_path / "large", tmp_path / "small"]
    assert disk_ceiling(tmp_path / "none") is None
    assert disk_ceiling(tmp_path / "folder") is None
    monkeypatch.setattr(module, "read_rates", lambda _: [])
    assert disk_ceiling(tmp_path) is None
