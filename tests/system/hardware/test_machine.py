"""What a machine can run."""

from __future__ import annotations

import pytest

from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, parse_target

CPU = Machine(frozenset({"avx2", "fma"}), (), "no NVIDIA driver is installed")


def test_a_cpu_needs_all_features() -> None:
    assert CPU.misfit(Target("t", "cpu", ("avx2",))) == ""
    assert CPU.misfit(Target("t", "cpu")) == ""
    assert (
        CPU.misfit(Target("t", "cpu", ("b", "avx2", "a"))) == "it needs a, b, which this CPU lacks"
    )


@pytest.mark.parametrize(
    ("target", "devices", "runs"),
    [
        ("cuda:sm_80", (80,), True),
        ("cuda:sm_80", (89,), True),
        ("cuda:sm_89", (80,), False),
        ("cuda:sm_89", (90,), False),
        ("cuda:sm_120", (90,), False),
        ("cuda:sm_80+sm_90", (90,), True),
        ("cuda:sm_90", (80, 90), True),
    ],
)
def test_code_runs_on_its_major_version_from_its_minor_one_on(
    target: str, devices: tuple[int, ...], runs: bool
) -> None:
    reason = Machine(frozenset(), devices).misfit(parse_target(target))
    assert (reason == "") is runs
    if not runs:
        present = ", ".join(f"sm_{device}" for device in devices)
        arch = target.removeprefix("cuda:")
        assert reason == f"it was compiled for {arch}, the CUDA devices here are {present}"


def test_without_a_device_the_reason_is_told() -> None:
    reason = "it needs a CUDA device: no NVIDIA driver is installed"
    assert CPU.misfit(parse_target("cuda:sm_80")) == reason
