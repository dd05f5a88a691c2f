"""The instruction set of a target, and what the compiled kernels are made of."""

from __future__ import annotations

import re

import pytest

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.matmul.matmul_float import LONE_ROWS, FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TALL_ROWS, TwoLevelMatmul
from optc.backends.tvm.kernels.matmul.places import BLOCK, LINE, NEAR, STRANDS, WINDOW, in_turn
from optc.errors import UnavailableError
from optc.system.hardware.target import Target
from tests.backends.tvm.matmul_cases import V3, V4, V4_BF16, V4_SPARSE, assembly

BYTES = IntMatmul(192, 256)
NIBBLES = IntMatmul(200, 256, 4, 32)
UNPACKED = TwoLevelMatmul(192, 512)
SIX_BITS = TwoLevelMatmul(192, 512, bits=6)
FLOAT = FloatMatmul(192, 256)
BFLOAT = FloatMatmul(128, 256, "bfloat16")


def test_chooses_the_best_instruction_set_the_target_has() -> None:
    assert isa_of(V3).name == "avx2"
    assert (isa_of(V4).name, isa_of(V4).bf16) == ("avx512_vnni", False)
    assert (isa_of(V4_BF16).vnni, isa_of(V4_BF16).bf16) == (True, True)
    without_vnni = Target("x", "cpu", tuple(f for f in V4.features if f != "avx512_vnni"))
    assert isa_of(without_vnni) == isa_of(V3)


def test_uses_no_feature_that_the_target_lacks() -> None:
    for target in (V3, V4, V4_BF16):
        assert set(isa_of(target).features) <= set(target.features)
    attributes = isa_of(V4_BF16).tvm_target().attrs["mattr"]
    assert {"+avx512vnni", "+avx512bf16", "+fma"} <= set(attributes)


def test_spreads_bytes_where_there_is_an_instruction() -> None:
    expected = {V3: False, V4: False, V4_BF16: False, V4_SPARSE: True}
    assert {target: isa_of(target).expands for target in expected} == expected
    attributes = isa_of(V4_SPARSE).tvm_target().attrs["mattr"]
    assert {"+avx512vbmi2", "+popcnt"} <= set(attributes)
    assert "+popcnt" not in isa_of(V4).tvm_target().attrs["mattr"]


def test_says_what_a_target_lacks() -> None:
    with pytest.raises(UnavailableError, match="the target lacks f16c, fma") as caught:
        isa_of(Target("old", "cpu", ("avx2",)))
    assert "x86-64-v3" in caught.value.hint
    with pytest.raises(UnavailableError, match="is of kind cuda"):
        isa_of(Target("h200", "cuda", V4.features, "sm_90"))


@pytest.mark.parametrize("config", [BYTES, NIBBLES], ids=lambda config: config.name)
def test_integer_kernels_use_the_dot_product_of_their_instruction_set(config: IntMatmul) -> None:
    wide, narrow = assembly(config, isa_of(V4)), assembly(config, isa_of(V3))
    assert re.search(r"vpdpbusd\s+.*%zmm", wide)
    assert "vpmaddubsw" not in wide
    assert re.search(r"vpmaddubsw\s+.*%ymm", narrow)
    assert "zmm" not in narrow
    assert "vpdpbusd" not in narrow


def test_a_lone_tile_fetches_each_line_that_it_will_read() -> None:
    loop = _innermost(assembly(BYTES, isa_of(V4)), "vpdpbusd", count=4)
    read = _places("vmovdqu64", loop)
    assert len(read) == BLOCK // 16
    near = [(place - 256 * NEAR, base) for place, base in _places("prefetcht0", loop)]
    assert sorted(near) == sorted(read)
    far = sorted(place for place, _ in _places("prefetcht1", loop))
    strand = WINDOW // STRANDS * 256
    assert [place - far[0] for place in far] == [strand * index for index in range(STRANDS)]


def test_a_part_of_a_lone_tile_fetches_from_two_strands_of_the_next_block() -> None:
    """Eight rows are too many for all columns at once: half of them, then the others."""
    also = ("vpmullw", "vpbroadcastd")
    loop = _innermost(assembly(UNPACKED, isa_of(V4)), "vpdpbusd", 2 * 8 * 2, also)
    assert len(_places("vmovdqu64", loop)) == 2
    assert len(_places("prefetcht0", loop)) == 2
    one, other = sorted(place for place, _ in _places("prefetcht1", loop))
    block = UNPACKED.k * BLOCK * UNPACKED.bits // 8
    assert other - one == block // STRANDS * 2


def test_a_tall_tile_unpacks_a_vector_for_all_of_its_rows() -> None:
    """Each product reads its activations from memory, where those of all rows lie side by side."""
    loop = _innermost(
        assembly(UNPACKED, isa_of(V4)), "vpdpbusd", 2 * TALL_ROWS, ("vpmullw", "{1to16}")
    )
    assert loop.count("vpmullw") == 2
    assert loop.count("vpsrlw") == 1
    found = re.findall(r"vpdpbusd\s+(-?\d*)\(([^)]*)\)\{1to16\}", loop)
    places = [int(place or 0) for place, _ in found]
    assert len({address for _, address in found[:TALL_ROWS]}) == 1
    for half in (places[:TALL_ROWS], places[TALL_ROWS:]):
        assert [place - half[0] for place in half] == [*range(0, 4 * TALL_ROWS, 4)]
    assert "rsp" not in loop


def test_fetches_of_six_bits_lie_between_its_products() -> None:
    """A unit has three rows of packed weights; their fetches at once would hold up its loads."""
    loop = _innermost(assembly(SIX_BITS, isa_of(V4)), "vpdpbusd", 4 * 4, ("prefetcht0",))
    runs = re.findall(r"(?:^\tprefetch.*\n)+", _only(loop, ("prefetch", "vpdpbusd")), re.MULTILINE)
    assert len(runs) >= 3
    assert max(run.count("prefetch") for run in runs) <= loop.count("prefetch") / 2


@pytest.mark.parametrize(
    ("config", "target", "product"),
    [(FLOAT, V4, "vfmadd"), (BFLOAT, V4_BF16, "vdpbf16ps")],
    ids=["float32", "bfloat16"],
)
def test_seven_rows_by_float_weights_are_one_tile(
    config: FloatMatmul, target: Target, product: str
) -> None:
    """One loop has all their products: weights are read once."""
    loop = _innermost(assembly(config, isa_of(target)), product, LONE_ROWS * BLOCK // 16)
    assert len(_places("prefetcht0", loop)) == BLOCK // 16


def _only(loop: str, instructions: tuple[str, ...]) -> str:
    """The lines of a loop that have one of these."""
    lines = loop.splitlines(keepends=True)
    return "".join(line for line in lines if any(name in line for name in instructions))


def _places(instruction: str, loop: str) -> list[tuple[int, str]]:
    """What the instruction's memory operands are: distance and register."""
    found = re.findall(rf"{instruction}\s+(-?\d*)\((%\w+(?:,%\w+)?)\)", loop)
    return [(int(place or 0), base) for place, base in found]


@pytest.mark.parametrize("strand", [1, 16, 48, 64])
@pytest.mark.parametrize("strands", [2, 4])
def test_every_line_of_what_is_next_has_its_turn(strand: int, strands: int) -> None:
    apart = strand * LINE
    order = [int(in_turn(index, strands, apart)) for index in range(strands * strand)]
    assert [place // apart for place in order] == [index % strands for index in range(len(order))]
    assert sorted(order) == [line * LINE for line in range(len(order))]


def _innermost(text: str, instruction: str, count: int, also: tuple[str, ...] = ()) -> str:
    """The first loop without a label inside that has one instruction ``count`` times, and what
    it has to have also."""
    text = re.sub(r"^\.Ltmp\d+:\n", "", text, flags=re.MULTILINE)  # of debuggers
    for label, body in re.findall(r"^(\.LBB\w+):\n((?:\t.*\n)*)", text, re.MULTILINE):
        loop: str = body.partition(f"\t{label}\n")[0]
        if loop != body and loop.count(instruction) == count and all(part in loop for part in also):
            return loop
    raise AssertionError(f"no loop with {count} {instruction}")


def test_float_kernels_use_fused_multiply_adds() -> None:
    assert re.search(r"vfmadd\S+\s+.*%zmm", assembly(FLOAT, isa_of(V4)))
    assert re.search(r"vfmadd\S+\s+.*%ymm", assembly(FLOAT, isa_of(V3)))
    assert "zmm" not in assembly(FLOAT, isa_of(V3))


def test_bfloat16_kernels_use_vdpbf16ps_only_where_it_exists() -> None:
    assert re.search(r"vdpbf16ps\s+.*%zmm", assembly(BFLOAT, isa_of(V4_BF16)))
    assert "optc_dpbf16" not in assembly(BFLOAT, isa_of(V4_BF16))
    for target in (V4, V3):
        text = assembly(BFLOAT, isa_of(target))
        assert "vdpbf16ps" not in text
        assert "vfmadd" in text


@pytest.mark.parametrize("config", [BYTES, NIBBLES, FLOAT], ids=lambda config: config.name)
def test_accumulators_are_not_allocated_at_run_time(config: IntMatmul | FloatMatmul) -> None:
    for target in (V3, V4):
        assert "AllocWorkspace" not in assembly(config, isa_of(target))
