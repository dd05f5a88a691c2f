"""The model of AVX-VNNI against NumPy; and several models in one process: each passes on what it
does not know."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from tests.vnni.model import has_vnni, lacking

#: ymm0 to ymm2 are loaded from memory, and ymm0 is stored there; rdi has the address.
LOADS, STORE = "c5fe6f07 c5fe6f4f20 c5fe6f5740", "c5fe7f07 c3"

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


@pytest.mark.parametrize(
    ("code", "words", "size"),
    [
        ("c4e27550c2", False, 32),  # vpdpbusd ymm0, ymm1, ymm2
        ("c4e2755047 40", False, 32),  # vpdpbusd ymm0, ymm1, [rdi+64]
        ("c4e27552c2", True, 32),  # vpdpwssd ymm0, ymm1, ymm2
        ("c4e27152c2", True, 16),  # vpdpwssd xmm0, xmm1, xmm2
    ],
)
def test_products_are_those_of_the_manual(code: str, words: bool, size: int, vnni: Isa) -> None:
    memory = np.random.default_rng(0).integers(0, 256, 96, np.uint8)
    memory[32:36], memory[64:68] = 255, 127  # products beyond 16 bits
    types = (np.int16, np.int16) if words else (np.uint8, np.int8)
    sums = memory[:32].view(np.int32).astype(np.int64)
    one, other = (memory[at : at + 32].view(t) for at, t in zip((32, 64), types, strict=True))
    products = one.astype(np.int64) * other.astype(np.int64)
    expected = (sums + products.reshape(8, -1).sum(axis=1)).astype(np.int32)
    expected[size // 4 :] = 0
    room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    room.write(bytes.fromhex(LOADS + code + STORE))
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(place)(memory.ctypes.data)
    np.testing.assert_array_equal(memory[:32].view(np.int32), expected)
