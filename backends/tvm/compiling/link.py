"""Linking compiled objects into a shared library, with whatever C++ compiler there is."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from optc.errors import UnavailableError
from optc.system.hardware.target import AARCH64, X86_64

#: Names of C++ compilers that can link a shared library, best first.
COMPILERS = ("c++", "g++", "clang++")
_SOURCE_FLAGS = ("-O2", "-x", "c")
#: Zig compiles for this machine's own CPU, others for any of the architecture.
_ZIG_FLAGS = ("-mcpu=baseline",)
_FLAGS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,-z,noexecstack")
#: A function by another name, where the linker gives none (Zig's knows no --defsym): it jumps.
_JUMP = {
    X86_64: '__asm__(".globl {new}\\n.type {new},@function\\n{new}: jmp {old}@PLT");\n',
    AARCH64: '__asm__(".globl {new}\\n.type {new},%function\\n{new}: b {old}");\n',
}
#: What Zig links for, by the kind of processor: the least release of the C library is that of the
#: runtime libraries' wheels.
_ZIG_TARGETS = {X86_64: "x86_64-linux-gnu.2.28", AARCH64: "aarch64-linux-gnu.2.28"}
#: Of sources in C for another kind of processor: with the atomic operations of Armv8.1.
_ZIG_ARM_FLAGS = ("-mcpu=generic+v8_2a",)


def linker_command(processor: str = "") -> tuple[str, ...]:
    """The command that links: the system's C++ compiler, else the one of the ziglang wheel, which
    alone links for other processors than this machine's.

    Args:
        processor: Kind of processor (`optc.system.hardware.target.Target.processor`); empty is this
            machine's.

    Raises:
        UnavailableError: There is neither; the hint says how to get one.
    """
    own = processor in ("", platform.machine())
    for name in COMPILERS if own else ():
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        target = () if own else ("-target", _ZIG_TARGETS[processor])
        return (sys.executable, "-m", "ziglang", "cc", *target)
    if not own:
        raise UnavailableError(
            f"linking an engine for {processor} on {platform.machine()} needs the ziglang package",
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
    processor: str = "",
) -> None:
    """Link ``objects`` into the shared library ``output``; the same bytes give the same file.

    Args:
        output: The library.
        objects: Compiled objects.
        sources: Files in C that go into it as well.
        names: Further names of symbols: the new one, and the one that an object has.
        processor: Kind of processor that the objects are for; empty is this machine's.

    Raises:
        UnavailableError: There is no linker, or it failed; the message ends in its last lines.
    """
    command = [*linker_command(processor), *_FLAGS, "-o", output, *objects]
    with tempfile.TemporaryDirectory() as folder:
        if "ziglang" in command:
            command += _ZIG_ARM_FLAGS if processor == AARCH64 else _ZIG_FLAGS
            jumps = Path(folder) / "names.c"
            jumps.write_text(_jumps(names or {}, processor or platform.machine()))
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


def _jumps(names: Mapping[str, str], processor: str) -> str:
    """A source in C with a function of each new name."""
    jumps = (_JUMP[processor].format(new=new, old=old) for new, old in names.items())
    return '__asm__(".text");\n' + "".join(jumps)
