"""Code for macOS on Apple silicon: linked here, read as its loader reads it. None of it has run."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from optc.backends.tvm.compiling.compiler import PREFIX, export
from optc.backends.tvm.compiling.link import link
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.loaded.thread_pool import SOURCE
from optc.errors import UnavailableError
from optc.system.hardware.platforms import LINUX, MACOS_ARM
from optc.system.hardware.target import known_targets
from tests.arm.macho import (
    AD_HOC,
    ARM64,
    DYLIB,
    MAGIC,
    PLATFORM_MACOS,
    READ_ONLY,
    TWO_LEVELS,
    MachO,
)
from tests.backends.tvm.matmul_cases import compiled
from tests.support.shared import made_once

TARGETS = ("arm64-macos-dotprod", "arm64-macos-i8mm")
CONFIG = IntMatmul(192, 256)
SYSTEM, FFI = "/usr/lib/libSystem.B.dylib", "@rpath/libtvm_ffi.dylib"
#: What `optc.backends.tvm.loaded` asks a library for by name.
ASKED_FOR = {
    "__TVMBackendParallelLaunch",
    *(f"optc_pool_{name}" for name in ("bytes", "launch", "stop", "use", "work")),
}
#: Instructions by their mask and bits (Arm's architecture reference manual, C4).
INSTRUCTIONS = {
    "sdot": (0xBFE0FC00, 0x0E809400),
    "usdot": (0xBFE0FC00, 0x0E809C00),
    "usmmla": (0xFFE0FC00, 0x4E80AC00),
    "smmla": (0xFFE0FC00, 0x4E80A400),
    "ummla": (0xFFE0FC00, 0x6E80A400),
    "bfdot": (0xBFE0FC00, 0x2E40FC00),
    "bfmmla": (0xFFE0FC00, 0x6E40EC00),
    "sve": (0x1E000000, 0x04000000),
}


def instructions(code: bytes) -> Counter[str]:
    """How often those of `INSTRUCTIONS` are in a section of code."""
    words = (word for (word,) in struct.iter_unpack("<I", code))
    return Counter(
        name for word in words for name, (mask, bits) in INSTRUCTIONS.items() if word & mask == bits
    )


def check_code(library: MachO, target: str) -> None:
    """M1 has products of four bytes, M2 those of i8mm as well; no kernel uses more."""
    found = instructions(library.section("__text"))
    products = {"usdot", "usmmla"} if target.endswith("i8mm") else {"sdot"}
    assert found.keys() == products, found


def check_library(library: MachO, name: str) -> None:
    """A library that arm64 macOS loads: of its kind, signed as it is, and all it needs is there."""
    assert (library.magic, library.processor, library.kind) == (MAGIC, ARM64, DYLIB)
    assert library.flags & TWO_LEVELS
    assert library.version == (PLATFORM_MACOS, "12.0")
    assert library.has_uuid
    assert library.install_name == f"@rpath/{name}"
    assert (library.libraries, library.search_paths) == ([SYSTEM, FFI], [])
    segments = {segment.name: segment for segment in library.segments}
    assert segments["__TEXT"].protection == 5, "nothing that is written is run"
    assert segments["__DATA_CONST"].flags & READ_ONLY
    assert all(segment.address % 0x4000 == 0 for segment in library.segments), "pages of 16 KiB"
    assert library.exports.keys() >= ASKED_FOR
    check_bindings(library)
    signature = library.signature
    assert signature.identifier == name
    assert signature.flags & AD_HOC
    assert signature.covered == library.signed_at
    assert signature.stated == signature.found


def check_bindings(library: MachO) -> None:
    """All that is looked up is the system's, tvm_ffi's, or its own."""
    given = system_symbols()
    for bound in library.bindings:
        if bound.weak:  # once for all that a process has loaded
            assert bound.symbol.removeprefix("_") in library.exports
            assert bound.symbol.startswith("___TVMBackend")
        elif bound.library == FFI:
            assert bound.symbol == "_TVMFFIErrorSetRaisedFromCStrParts"
        else:
            assert bound.library == SYSTEM
            assert bound.symbol in given


def system_symbols() -> set[str]:
    """Symbols of the system's library, as Apple's description in Zig's package lists them."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    text = (Path(spec.origin).parent / "lib/libc/darwin/libSystem.tbd").read_text()
    return set(re.findall(r"\b_+\w+|\bdyld_stub_binder\b", text))


def made(folder: Path, target: str) -> Path:
    """A kernel and the thread pool, linked as an engine is."""
    isa = isa_of(known_targets()[target])
    path = folder / "engine.dylib"
    names = {f"{PREFIX}other": f"{PREFIX}{CONFIG.name}"}
    export(compiled(CONFIG, isa), path, SOURCE, names=names, platform=isa.platform)
    return path


@pytest.fixture(scope="module", params=TARGETS)
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    pytest.importorskip("ziglang")
    target: str = request.param
    return target, made_once(tmp_path_factory, target, lambda folder: made(folder, target))


def test_its_loader_takes_the_library(library: tuple[str, Path]) -> None:
    target, path = library
    found = MachO(path)
    check_library(found, "engine.dylib")
    check_code(found, target)
    assert {f"{PREFIX}{CONFIG.name}", f"{PREFIX}other"} <= found.exports.keys()
    assert "_pthread_cond_wait" in {one.symbol for one in found.bindings}, "there are no futexes"


@pytest.mark.parametrize("target", TARGETS)
def test_its_kernels_are_those_of_linux(target: str) -> None:
    isa = isa_of(known_targets()[target])
    linux = isa_of(known_targets()[target.replace("arm64-macos", "aarch64")])
    assert replace(isa, system=LINUX) == linux
    assert isa.tvm_target().attrs["mtriple"] == "arm64-apple-macos12.0"
    assert isa.tvm_target().attrs["mattr"] == linux.tvm_target().attrs["mattr"]


def test_a_changed_byte_is_seen_by_the_signature(library: tuple[str, Path], tmp_path: Path) -> None:
    data = bytearray(library[1].read_bytes())
    data[0x5000] ^= 1
    changed = tmp_path / "changed.dylib"
    changed.write_bytes(data)
    signature = MachO(changed).signature
    differ = [a != b for a, b in zip(signature.stated, signature.found, strict=True)]
    assert [page for page, one in enumerate(differ) if one] == [0x5000 // signature.page_bytes]


def test_the_same_code_gives_the_same_library(library: tuple[str, Path], tmp_path: Path) -> None:
    again = made(tmp_path, library[0])
    assert again.read_bytes() == library[1].read_bytes()
    assert str(tmp_path).encode() not in again.read_bytes()


def test_a_symbol_that_nothing_gives_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    source = tmp_path / "calls.c"
    source.write_text("void TVMFFINothing(void); void call(void) { TVMFFINothing(); }")
    with pytest.raises(UnavailableError, match="undefined symbol: _TVMFFINothing"):
        link(str(tmp_path / "calls.dylib"), [], [str(source)], platform=MACOS_ARM)


def test_instructions_are_told_apart(tmp_path: Path) -> None:
    """By an assembler, which knows them by name."""
    pytest.importorskip("ziglang")
    source, output = tmp_path / "all.s", tmp_path / "all.dylib"
    lines = (
        *("sdot v0.4s, v1.16b, v2.16b", "usdot v0.4s, v1.16b, v2.16b"),
        *("usmmla v3.4s, v1.16b, v2.16b", "smmla v0.4s, v1.16b, v2.16b"),
        *("ummla v0.4s, v1.16b, v2.16b", "bfdot v0.4s, v1.8h, v2.8h"),
        *("bfmmla v0.4s, v1.8h, v2.8h", "add z0.s, z1.s, z2.s", "add v0.4s, v1.4s, v2.4s", "ret"),
    )
    source.write_text("\n".join((".text", ".globl _all", ".p2align 2", "_all:", *lines, "")))
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos.12.0"]
    options = ["-mcpu=generic+v8_2a+dotprod+i8mm+bf16+sve", "-shared", "-o", str(output)]
    subprocess.run([*zig, *options, str(source)], check=True)
    assert instructions(MachO(output).section("__text")) == dict.fromkeys(INSTRUCTIONS, 1)
