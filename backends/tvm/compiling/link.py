"""Linking compiled objects into a shared library, with whatever C++ compiler there is."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from optc.errors import UnavailableError

#: Names of C++ compilers that can link a shared library, best first.
COMPILERS = ("c++", "g++", "clang++")
_SOURCE_FLAGS = ("-O2", "-x", "c")
#: Zig compiles for this machine's own CPU, others for any of the architecture.
_ZIG_FLAGS = ("-mcpu=baseline",)
_FLAGS = ("-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,-z,noexecstack")


def linker_command() -> tuple[str, ...]:
    """The command that links: the system's C++ compiler, else the one of the ziglang wheel.

    Raises:
        UnavailableError: There is neither; the hint says how to get one.
    """
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
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
) -> None:
    """Link ``objects`` into the shared library ``output``; the same bytes give the same file.

    Args:
        output: The library.
        objects: Compiled objects.
        sources: Files in C that go into it as well.
        names: Further names of symbols: the new one, and the one that an object has.

    Raises:
        UnavailableError: There is no linker, or it failed; the message ends in its last lines.
    """
    command = [*linker_command(), *_FLAGS, "-o", output, *objects]
    command += [f"-Wl,--defsym={new}={old}" for new, old in (names or {}).items()]
    if sources:
        command += [*(_ZIG_FLAGS if "ziglang" in command else ()), *_SOURCE_FLAGS, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = " | ".join(done.stderr.strip().splitlines()[-5:])
        raise UnavailableError(
            f"{command[0]} could not link the engine: {tail}",
            where="tvm backend",
            hint="check that this C++ compiler works, or: pip install ziglang",
        )
