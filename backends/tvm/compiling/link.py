"""Linking compiled objects into a shared library, with whatever C++ compiler there is."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from optc.errors import UnavailableError
from optc.system.hardware.platforms import AARCH64, MACOS_ARM, X86_64, this_platform

#: Names of C++ compilers that can link a shared library, best first.
COMPILERS = ("c++", "g++", "clang++")
_SOURCE_FLAGS = ("-O2", "-x", "c")
_FLAGS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,-z,noexecstack")
#: Of sources in C for another kind of processor: with the atomic operations of Armv8.1.
_ARM_SOURCES = ("-mcpu=generic+v8_2a",)
_ELF_JUMP = '__asm__(".globl {new}\\n.type {new},%function\\n{new}: b {old}");\n'


@dataclass(frozen=True)
class _Zig:
    """Zig's linker for a platform.

    Attributes:
        target: As it calls the platform, with the least release of the system's libraries, which is
            that of the runtime libraries' wheels.
        sources: Options of sources in C: Zig compiles for this machine's own CPU, others for any of
            the architecture.
        jump: A function by another name, in C, as this linker gives none (it knows no --defsym).
    """

    target: str
    sources: tuple[str, ...]
    jump: str


_ZIG = {
    X86_64: _Zig(
        "x86_64-linux-gnu.2.28",
        ("-mcpu=baseline",),
        '__asm__(".globl {new}\\n.type {new},@function\\n{new}: jmp {old}@PLT");\n',
    ),
    AARCH64: _Zig("aarch64-linux-gnu.2.28", _ARM_SOURCES, _ELF_JUMP),
    # The kernel tells features of the processor by name from release 12 on.
    MACOS_ARM: _Zig(
        "aarch64-macos.12.0",
        _ARM_SOURCES,
        '__asm__(".globl _{new}\\n.p2align 2\\n_{new}: b _{old}");\n',
    ),
}
#: A library that is known by this description alone (Apple's text-based stubs): what kernels call
#: in tvm_ffi. A symbol that is neither in it nor in the system's libraries is refused.
_TVM_FFI = """\
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '@rpath/libtvm_ffi.dylib'
exports:
  - targets: [ arm64-macos ]
    symbols: [ _TVMFFIEnvModLookupFromImports, _TVMFFIErrorSetRaisedFromCStr,
               _TVMFFIErrorSetRaisedFromCStrParts, _TVMFFIFunctionCall ]
...
"""


def linker_command(platform: str = "") -> tuple[str, ...]:
    """The command that links: the system's C++ compiler, else the one of the ziglang wheel, which
    alone links for other platforms than this machine's.

    Args:
        platform: What the code is for (`optc.system.hardware.target.Target.platform`); empty is
            this machine.

    Raises:
        UnavailableError: There is neither; the hint says how to get one.
    """
    own = platform in ("", this_platform())
    for name in COMPILERS if own else ():
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        target = () if own else ("-target", _ZIG[platform].target)
        return (sys.executable, "-m", "ziglang", "cc", *target)
    if not own:
        raise UnavailableError(
            f"linking an engine for {platform} on {this_platform()} needs the ziglang package",
            where="tvm backend",
            hint="pip install ziglang",
        )
    raise UnavailableError(
        "linking the engine needs a C++ compiler and none was found",
        where="tvm backend",
        hint=f"install one of {', '.join(COMPILERS)}, or: pip install ziglang",
    )


def link(
    output: str,
    objects: Sequence[str],
    sources: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    platform: str = "",
) -> None:
    """Link ``objects`` into the shared library ``output``; the same bytes give the same file.

    Args:
        output: The library.
        objects: Compiled objects.
        sources: Files in C that go into it as well.
        names: Further names of symbols: the new one, and the one that an object has.
        platform: What the objects are for; empty is this machine.

    Raises:
        UnavailableError: There is no linker, or it failed; the message ends in its last lines.
    """
    command = list(linker_command(platform))
    with tempfile.TemporaryDirectory() as folder:
        command += _flags(output, platform, Path(folder))
        command += ["-o", output, *objects]
        if "ziglang" in command:
            zig = _ZIG[platform or this_platform()]
            command += zig.sources
            jumps = Path(folder) / "names.c"
            jumps.write_text(_jumps(names or {}, zig.jump))
            sources = [*sources, str(jumps)]
        else:
            command += [f"-Wl,--defsym={new}={old}" for new, old in (names or {}).items()]
        if sources:
            command += [*_SOURCE_FLAGS, *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = " | ".join(done.stderr.strip().splitlines()[-5:])
        raise UnavailableError(
            f"{command[0]} could not link the engine: {tail}",
            where="tvm backend",
            hint="check that this C++ compiler works, or: pip install ziglang",
        )


def _flags(output: str, platform: str, folder: Path) -> list[str]:
    """Options of a library for a platform; files that they name go into ``folder``."""
    if platform != MACOS_ARM:
        return [*_FLAGS]
    stub = folder / "libtvm_ffi.tbd"
    stub.write_text(_TVM_FFI)
    # without symbols for debuggers, which name files of this machine
    return ["-shared", "-s", f"-Wl,-install_name,@rpath/{Path(output).name}", str(stub)]


def _jumps(names: Mapping[str, str], jump: str) -> str:
    """A source in C with a function of each new name."""
    return '__asm__(".text");\n' + "".join(
        jump.format(new=new, old=old) for new, old in names.items()
    )
