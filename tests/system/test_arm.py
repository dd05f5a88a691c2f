"""Features and names of processors of aarch64."""

from __future__ import annotations

import struct

import pytest

from optc.system.arm import arm_features, arm_name

#: HWCAP and HWCAP2 of a Graviton 2 (Neoverse N1) and a Graviton 3 (Neoverse V1).
N1, V1 = (0x0011_9FFF, 0), (0x00F3_FFFF | 1 << 22, 1 << 13 | 1 << 14)


def _auxiliary(first: int, second: int) -> bytes:
    pairs = [(33, 0xFFFF_0000), (16, first), (6, 4096), (26, second), (0, 0)]
    return b"".join(struct.pack("=QQ", *pair) for pair in pairs)


def test_features_are_read_from_the_auxiliary_vector() -> None:
    assert {"asimd", "asimddp", "atomics"} <= arm_features(_auxiliary(*N1))
    assert "i8mm" not in arm_features(_auxiliary(*N1))
    assert {"asimddp", "i8mm", "bf16", "sve"} <= arm_features(_auxiliary(*V1))
    assert arm_features(_auxiliary(2, 0)) == {"asimd"}
    assert arm_features(_auxiliary(*N1) + b"torn") == arm_features(_auxiliary(*N1))


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        ("0x41", "0xd0c", "Arm Neoverse N1"),
        ("0x41", "0xd40", "Arm Neoverse V1"),
        ("0x61", "0x022", "aarch64 (implementer 0x61, part 0x22)"),
    ],
)
def test_names(implementer: str, part: str, name: str) -> None:
    text = f"processor\t: 0\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"
    assert arm_name(text) == name


def test_a_kernel_that_says_nothing() -> None:
    assert arm_name("model name\t: QEMU\n") == "aarch64"
