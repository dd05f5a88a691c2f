"""Stands in for nvcc: compiles emitted kernels for the host, as ``driver.cpp`` loads them.

``EMULATOR_HEADERS`` is a folder with ``emulator.h.gch``, which ``--header`` makes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
#: With -O1 a kernel takes two thirds of the time to compile that it takes with -O2, and runs as
#: long; with -O0 it runs so much longer that nothing is won.
COMPILE = ["g++", "-std=c++17", "-O1", "-fPIC", "-w", "-mfma", "-ffp-contract=off"]
COMPILE += ["-fno-strict-aliasing"]
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(')


def main(arguments: list[str]) -> None:
    """``nvcc … -o IMAGE SOURCE``, where other options are nvcc's own; or ``--header FILE``."""
    if "--header" in arguments:
        header = HERE / "emulator.h"
        subprocess.run([*COMPILE, "-x", "c++-header", str(header), "-o", arguments[-1]], check=True)
        return
    if "--version" in arguments:
        print("Cuda compilation tools, release 13.0, V13.0.0 (emulated)")
        return
    image, source = Path(arguments[arguments.index("-o") + 1]), Path(arguments[-1])
    code = source.read_text()
    names = dict.fromkeys(_KERNEL.findall(code))
    entries = "\n".join(map(_entries, names))
    with tempfile.TemporaryDirectory() as folder:
        unit, library = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
        unit.write_text(f'#include "emulator.h"\n{code}\n{entries}\n')
        folders = (os.environ["EMULATOR_HEADERS"], HERE, HERE / "include")
        command = [*COMPILE, "-shared", *(f"-I{path}" for path in folders)]
        subprocess.run([*command, "-o", str(library), str(unit)], check=True)
        content = library.read_bytes()
    image.write_bytes(b"OPTCEMUL" + len(content).to_bytes(8, "little") + content)


def _entries(name: str) -> str:
    """C functions that call a kernel, and that copy its arguments."""
    return (
        f'extern "C" void emulated_{name}(void** values) {{ emulator::call(&{name}, values); }}\n'
        f'extern "C" void** kept_{name}(void** values) '
        f"{{ return emulator::keep(&{name}, values); }}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
