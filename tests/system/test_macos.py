"""The processor and memory of a Mac, by a kernel that answers as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.backends.tvm.streamed.moving import check_system
from optc.errors import UnavailableError
from optc.system import available, macos
from optc.system.hardware import platforms, target
from optc.system.hardware.machine import Machine
from optc.system.hardware.platforms import AARCH64, LINUX, MACOS, MACOS_ARM, X86_64, platform_of
from optc.system.hardware.target import known_targets, parse_target
from tests.arm.like_macos import ANSWERS, kernel


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | str]:
    """This machine is a Mac with an M2; its answers may be changed."""
    answers = dict(ANSWERS)
    monkeypatch.setattr(macos, "_library", lambda: kernel(answers))
    for module in (platforms, target, available):
        monkeypatch.setattr(module, "this_system", lambda: MACOS)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    return answers


def test_an_m2_has_the_features_of_its_target(mac: dict[str, int | str]) -> None:
    assert target.host_features() == set(known_targets()["arm64-macos-i8mm"].features)
    assert "bf16" in macos.mac_features(), "no kernel asks for it"
    assert target.cpu_name() == "Apple M2"
    assert target.usable_threads() == 4, "of its eight cores the fast ones"
    assert platforms.this_platform() == MACOS_ARM


def test_an_m1_lacks_the_products_of_matrices(mac: dict[str, int | str]) -> None:
    mac |= {"hw.optional.arm.FEAT_I8MM": 0, "hw.optional.arm.FEAT_BF16": 0}
    here = Machine(target.host_features(), system=MACOS)
    assert here.misfit(parse_target("arm64-macos-dotprod")) == ""
    assert here.misfit(parse_target("arm64-macos-i8mm")) == "it needs i8mm, which this CPU lacks"


def test_a_kernel_that_says_little(mac: dict[str, int | str]) -> None:
    mac.clear()
    mac["hw.physicalcpu"] = 8
    assert target.host_features() == frozenset()
    assert (target.cpu_name(), target.usable_threads()) == ("arm64", 8)


def test_memory_is_the_share_that_the_kernel_gives(mac: dict[str, int | str]) -> None:
    assert available.available_memory() == 8 << 30
    assert available.resident_default(1 << 50) is None
    mac["kern.memorystatus_level"] = 25
    assert available.available_memory() == 4 << 30
    del mac["kern.memorystatus_level"]
    assert available.available_memory() == 8 << 30


@pytest.mark.usefixtures("mac")
def test_no_engine_is_compiled_on_a_mac() -> None:
    assert "native" not in known_targets()


def test_weights_of_a_mac_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.backends.tvm.streamed.moving.this_system", lambda: MACOS)
    with pytest.raises(UnavailableError, match="on macOS that is not written yet"):
        check_system([])


def test_a_c_library_without_the_call_says_nothing() -> None:
    assert Path("/proc/version").exists(), "this test runs on Linux"
    assert macos.mac_features() == frozenset()
    assert (macos.mac_name(), macos.fast_cores()) == ("arm64", 1)


@pytest.mark.parametrize(
    ("processor", "system", "platform"),
    [
        (X86_64, LINUX, "x86_64"),
        (AARCH64, LINUX, "aarch64"),
        (AARCH64, MACOS, "arm64-macos"),
        (X86_64, MACOS, "x86_64-macos"),
        ("", MACOS, ""),
    ],
)
def test_platforms(processor: str, system: str, platform: str) -> None:
    assert platform_of(processor, system) == platform


def test_platforms_of_targets() -> None:
    found = {name: one.platform for name, one in known_targets().items()}
    assert found["x86-64-amx"] == X86_64
    assert found["aarch64-i8mm"] == AARCH64
    assert found["arm64-macos-i8mm"] == MACOS_ARM
    assert found["cuda:sm_90"] == ""
