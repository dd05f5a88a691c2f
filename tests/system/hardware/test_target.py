"""Targets by name, and which machine runs them."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.system.hardware import target
from optc.system.hardware.machine import Machine, this_machine
from optc.system.hardware.platforms import MACOS
from optc.system.hardware.target import Target, known_targets, parse_target

V3 = frozenset({"avx2", "f16c", "fma"})
AMX = frozenset(known_targets()["x86-64-amx"].features)
M1 = frozenset({"asimd", "asimddp", "atomics"})
TILES = {"amx_tile", "amx_int8", "amx_bf16"}


def test_cuda_architectures_are_sorted_and_may_be_given_short() -> None:
    both = Target("cuda:sm_80+sm_89", "cuda", (), "sm_80+sm_89")
    for name in ("cuda:sm_89+sm_80", "cuda:sm_80,sm_89", "sm_80+sm_89", "sm_89,sm_80,sm_89"):
        assert parse_target(name) == both
    assert both.sm == (80, 89)
    assert parse_target("sm_120") == known_targets()["cuda:sm_120"]
    assert parse_target("native").sm == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x86-64-v5", "--backend: unknown target 'x86-64-v5' (did you mean 'x86-64-v"),
        ("sm_88", "--backend: unknown CUDA architecture 'sm_88' (one of sm_80, sm_86, sm_89, sm_"),
        ("cuda:", "--backend: unknown CUDA architecture '' (one of"),
        ("cuda:sm_90+x86-64-v3", "--backend: unknown CUDA architecture 'x86-64-v3'"),
        ("", "--backend: unknown target ''"),
    ],
)
def test_unknown_targets_are_named(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(name, "--backend")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("target", "machine", "reason"),
    [
        ("x86-64-v3", Machine(V3), ""),
        (
            "x86-64-v4-vnni",
            Machine(V3),
            "it needs avx512_vnni, avx512bw, avx512dq, avx512f, avx512vl, which this CPU lacks",
        ),
        ("x86-64-amx", Machine(AMX), ""),
        (
            "x86-64-amx",
            Machine(AMX - TILES, withheld="Operation not permitted"),
            "it needs amx_bf16, amx_int8, amx_tile, which this CPU has but the system does not "
            "grant (Operation not permitted)",
        ),
        (
            "x86-64-amx",
            Machine(AMX - TILES),
            "it needs amx_bf16, amx_int8, amx_tile, which this CPU lacks",
        ),
        (
            "aarch64-i8mm",
            Machine(frozenset({"asimd", "asimddp", "atomics"})),
            "it needs i8mm, which this CPU lacks",
        ),
        (
            "aarch64-dotprod",
            Machine(V3),
            "it needs a processor of aarch64, this one is of x86_64",
        ),
        (
            "x86-64-v3",
            Machine(frozenset({"asimd"})),
            "it needs a processor of x86_64, this one is of aarch64",
        ),
        ("arm64-macos-dotprod", Machine(M1, system=MACOS), ""),
        (
            "arm64-macos-i8mm",
            Machine(M1, system=MACOS),
            "it needs i8mm, which this CPU lacks",
        ),
        ("arm64-macos-dotprod", Machine(M1), "it needs macOS, this is Linux"),
        ("aarch64-dotprod", Machine(M1, system=MACOS), "it needs Linux, this is macOS"),
        (
            "sm_80",
            Machine(V3, (), "no driver"),
            "it needs a CUDA device: no driver",
        ),
        ("sm_80", Machine(V3, (86,)), ""),
        ("sm_86", Machine(V3, (80,)), "it was compiled for sm_86, the CUDA devices here are sm_80"),
        (
            "sm_80+sm_89",
            Machine(V3, (90, 120)),
            "it was compiled for sm_80+sm_89, the CUDA devices here are sm_90, sm_120",
        ),
        ("sm_89+sm_90", Machine(V3, (75, 90)), ""),
    ],
)
def test_a_machine_says_why_it_cannot_run_a_target(
    target: str, machine: Machine, reason: str
) -> None:
    assert machine.misfit(parse_target(target)) == reason


def test_this_machine_has_devices_or_a_reason_for_none() -> None:
    here = this_machine()
    assert bool(here.sm) != bool(here.no_cuda)
    assert here.misfit(parse_target("native")) == ""


@pytest.mark.parametrize("refusal", ["", "Invalid argument"])
def test_tiles_are_a_feature_if_the_system_grants_them(
    monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    monkeypatch.setattr(target, "_described_features", lambda: AMX)
    monkeypatch.setattr(target, "tiles_refusal", lambda: refusal)
    assert target.host_features() == (AMX - TILES if refusal else AMX)
    assert target.tiles_withheld() == refusal
    assert set(known_targets()["native"].features) == target.host_features()


def test_a_cpu_without_tiles_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_described_features", lambda: V3)
    monkeypatch.setattr(target, "tiles_refusal", lambda: "Invalid argument")
    assert target.host_features() == V3
    assert target.tiles_withheld() == ""
