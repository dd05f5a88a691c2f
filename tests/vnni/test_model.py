"""Models of instructions, several in one process: each passes on what it does not know."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.vnni.model import has_vnni, lacking

#: Both models are installed; then an instruction of each is run, in turns, and of no model at last.
CODE = """
import ctypes, mmap
from tests.amx import model as amx
from tests.vnni import model as vnni
first, second = ORDER
first.model(), second.model()
room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
def run(code):
    room.seek(0)
    room.write(bytes.fromhex(code) + b"\\xc3")
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(room)))()
for _ in range(2):
    run("c4e27550c2")  # vpdpbusd ymm0, ymm1, ymm2
    run("c4e27849c0")  # tilerelease
print(vnni.model().count(), amx.model().counts().release, flush=True)
run("0f0b")  # ud2
"""


@pytest.mark.parametrize("order", ["amx, vnni", "vnni, amx"])
def test_two_models_do_not_take_each_others_place(order: str) -> None:
    from tests.amx.model import has_amx

    if lacking() or has_vnni() or has_amx():
        pytest.skip("this machine computes what one of the models would")
    found = subprocess.run(
        [sys.executable, "-c", CODE.replace("ORDER", order)], capture_output=True, text=True
    )
    assert (found.stdout, found.returncode) == ("2 2\n", -4), found.stderr  # SIGILL
