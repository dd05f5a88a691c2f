"""For each target: the processors that have what it needs, and what was measured on it and when."""

from __future__ import annotations

from dataclasses import dataclass

from optc.system.hardware.target import Target, known_targets


@dataclass(frozen=True)
class Measured:
    """Speed of engines of a target, or that there is none.

    Attributes:
        machine: As ``benchmarks/results/README.md`` calls it.
        date: Of the newest result, ISO 8601.
    """

    machine: str
    date: str


@dataclass(frozen=True)
class TargetFacts:
    """The facts about a target.

    Attributes:
        runs_on: Processors that have what it needs.
        measured: Machines whose figures stand in ``benchmarks/results``; empty is none.
        tested: How its kernels and engines are tested where no speed was measured.
    """

    runs_on: str
    measured: tuple[Measured, ...] = ()
    tested: str = ""


_EMULATED = "run under qemu by its tests"
_INSPECTED = "built and inspected, its kernels run under qemu, by its tests; never run on a Mac"
_MODELLED = "its code runs on a model of the tile instructions by its tests"
_VNNI_MODELLED = "its code runs on a model of its products of bytes by its tests"
_UNRUN = "its kernels are compiled, and run on an emulator by their tests"
_FACTS = {
    "x86-64-v3": TargetFacts(
        "Intel from Haswell (2013), AMD from Excavator and Zen on",
        (Measured("Zen 3", "2026-11-30"),),
    ),
    "x86-64-v3-vnni": TargetFacts(
        "Intel without AVX-512 from Alder Lake (2021) and Sierra Forest on, AMD from Zen 5 on",
        tested=_VNNI_MODELLED,
    ),
    "x86-64-v4-vnni": TargetFacts(
        "Intel from Cascade Lake (2019) and Ice Lake, AMD from Zen 4 (2022) on",
        (
            Measured("Cascade Lake", "2026-11-27"),
            Measured("Emerald Rapids", "2026-11-23"),
            Measured("Xeon with AMX", "2026-11-26"),
            Measured("Zen 4", "2026-11-30"),
        ),
    ),
    "x86-64-amx": TargetFacts("Intel from Sapphire Rapids (2023) on", tested=_MODELLED),
    "aarch64-dotprod": TargetFacts(
        "Arm from Neoverse N1 (Graviton 2, Ampere Altra) and Cortex-A76 on", tested=_EMULATED
    ),
    "aarch64-i8mm": TargetFacts(
        "Arm from Neoverse V1 and N2 (Graviton 3 and 4, Axion, Cobalt, Grace) on",
        tested=_EMULATED,
    ),
    "arm64-macos-dotprod": TargetFacts("Macs from Apple M1 on, macOS 12", tested=_INSPECTED),
    "arm64-macos-i8mm": TargetFacts("Macs from Apple M2 on, macOS 12", tested=_INSPECTED),
    "cuda:sm_80": TargetFacts("NVIDIA A100, A30", tested=_UNRUN),
    "cuda:sm_86": TargetFacts("NVIDIA A10, A40, RTX 30", tested=_UNRUN),
    "cuda:sm_89": TargetFacts("NVIDIA L4, L40, RTX 40", tested=_UNRUN),
    "cuda:sm_90": TargetFacts("NVIDIA H100, H200, GH200", (Measured("H200", "2026-11-27"),)),
    "cuda:sm_100": TargetFacts("NVIDIA B200, GB200", tested=_UNRUN),
    "cuda:sm_120": TargetFacts("NVIDIA RTX 50, RTX PRO 6000", tested=_UNRUN),
}


def facts_of(target: Target) -> TargetFacts:
    """The facts about a target; of ``native`` those about the best other target whose features it
    has."""
    if target.name != "native":
        return _FACTS[target.name]
    mine = set(target.features)
    best = TargetFacts("this machine", tested="no other target is like it")
    for name, needed in _fixed(target.system).items():
        if needed and needed <= mine:
            best = TargetFacts("this machine", _FACTS[name].measured, _FACTS[name].tested)
    return best


def _fixed(system: str) -> dict[str, set[str]]:
    """Features of a system's targets for CPUs but ``native``, ascending."""
    fixed = (target for target in known_targets().values() if target.name != "native")
    fitting = (one for one in fixed if one.kind == "cpu" and one.system == system)
    return {target.name: set(target.features) for target in fitting}
