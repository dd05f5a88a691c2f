"""Kernels for aarch64: the instructions that they are made of, and bits equal to x86's."""

from __future__ import annotations

import re

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from optc.backends.tvm.kernels.token_wise.activation import GatedActivation
from optc.backends.tvm.kernels.token_wise.norm import RMSNorm
from optc.backends.tvm.kernels.token_wise.quantize import Quantize
from optc.errors import UnavailableError
from optc.system.hardware.target import Target, known_targets
from tests.arm.emulator import FULL, need_emulator
from tests.arm.kernels import only_here
from tests.backends.tvm import kernel_cases, matmul_cases
from tests.backends.tvm.kernel_cases import Array, blank, blank_quantized
from tests.backends.tvm.matmul_cases import assembly, int_case, two_level_case

DOTPROD, I8MM = known_targets()["aarch64-dotprod"], known_targets()["aarch64-i8mm"]
#: Code for macOS is placed in memory by a loader of the tests (`tests.arm.mach_loader`).
STANDING = ("aarch64-dotprod", "aarch64-i8mm")
STANDING += ("arm64-macos-dotprod", "arm64-macos-i8mm") if FULL else ()
BYTES, SCALED = IntMatmul(192, 256), TwoLevelMatmul(100, 77, 32, bias=True)


def test_instruction_sets_of_aarch64() -> None:
    plain, matrix = isa_of(DOTPROD), isa_of(I8MM)
    assert (plain.name, plain.i8mm, plain.vnni, plain.bf16, plain.lanes) == (
        "neon_dotprod",
        False,
        False,
        False,
        4,
    )
    assert (matrix.name, matrix.i8mm, matrix.dots) == ("neon_i8mm", True, True)
    assert plain.peaks == matrix.peaks == ("int8", "fp32")
    target = matrix.tvm_target()
    assert target.attrs["mtriple"] == "aarch64-linux-gnu"
    assert set(target.attrs["mattr"]) == {"+neon", "+dotprod", "+lse", "+i8mm"}
    with pytest.raises(UnavailableError, match="the target lacks asimddp") as caught:
        isa_of(Target("armv8", "cpu", ("asimd", "atomics")))
    assert "aarch64-dotprod" in caught.value.hint


@pytest.mark.parametrize(
    ("target", "used", "unused"),
    [(DOTPROD, ("sdot",), ("usdot", "usmmla")), (I8MM, ("usdot", "usmmla"), ("sdot",))],
    ids=["dotprod", "i8mm"],
)
def test_integer_kernels_use_the_products_of_their_target(
    target: Target, used: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    code = assembly(BYTES, isa_of(target))
    found = set(re.findall(r"^\t(\w+)\t", code, re.MULTILINE))
    assert found >= {*used, "prfm"}
    assert not found & set(unused)


def test_a_tile_of_a_prompt_reads_each_weight_once_from_memory() -> None:
    """Four rows by 16 columns: of every 64 bytes of weights, two pairs of rows take 8 products."""
    code = assembly(BYTES, isa_of(I8MM))
    loops = re.split(r"^\.LBB\S+:.*$", code, flags=re.MULTILINE)
    whole = [loop for loop in loops if loop.count("usmmla") == 16 and "prfm" in loop]
    assert whole
    assert all(len(re.findall(r"\tzip[12]\t", loop)) in (8, 16) for loop in whole)


def _both(run: object, isa: Isa) -> tuple[Array, Array]:
    here = isa_of(known_targets()["x86-64-v3"])
    return run(here), run(isa)  # type: ignore[operator]


@pytest.fixture(params=STANDING)
def isa(request: pytest.FixtureRequest) -> Isa:
    need_emulator()
    only_here()
    return isa_of(known_targets()[request.param])


@pytest.mark.parametrize("rows", [1, 5])
def test_matmuls_have_the_bits_of_x86(isa: Isa, rows: int) -> None:
    case = int_case(BYTES, rows)
    np.testing.assert_array_equal(*_both(lambda i: matmul_cases.run(BYTES, i, case.inputs()), isa))
    two, packed = two_level_case(SCALED, rows)
    inputs = [*two.inputs()[:3], *packed]
    np.testing.assert_array_equal(*_both(lambda i: matmul_cases.run(SCALED, i, inputs), isa))


def test_rows_have_the_bits_of_x86(isa: Isa) -> None:
    """Norms, activations and quantized rows, rotated ones too: float32 in the same operations."""
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((5, 300), np.float32), rng.standard_normal(300, np.float32)
    cases = [
        (RMSNorm(300, 1e-5), [x, scale, blank(5, 300)]),
        (GatedActivation(150, "silu"), [x, blank(5, 150)]),
        (Quantize(300), [x, *blank_quantized(5, 300)]),
        (Quantize(300, hadamard=256), [x, *blank_quantized(5, 300)]),
    ]
    for config, arrays in cases:
        found = _both(lambda i, c=config, a=arrays: kernel_cases.run(c, i, *a), isa)
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(config))
