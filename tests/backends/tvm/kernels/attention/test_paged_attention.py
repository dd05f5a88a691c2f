from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from _pytest.mark import ParameterSet
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention, paged_attention
from optc.errors import UnsupportedError
from optc.system.hardware.target import host_features, known_targets, parse_target
from tests.arm.kernels import only_here
from tests.backends.tvm.attention_cases import (
    ARITHMETICS,
    MIXED,
    SMALL,
    attend,
    check_rows_alone,
    oracle,
    part,
    sequences,
)
from tests.backends.tvm.kernel_cases import TARGETS, compiled, isa_named, sqnr
from tests.backends.tvm.kv_pools import taken_dim

#: With all that this machine has, such as vdpbf16ps.
NATIVE = isa_of(parse_target("native"))
CONFIGS = {
    "gqa": SMALL,
    "odd-dims": PagedAttention(3, 3, 24, 40, 0.2, group=1, groups=2),
    "window-softcap": PagedAttention(8, 2, 80, 80, 0.11, softcap=30.0, window=100),
    "mqa": PagedAttention(9, 1, 16, 16, 0.25, window=20),
    "more-heads-than-a-tile": PagedAttention(19, 1, 96, 96, 0.1),
    # without a window, which other shapes have: it makes this kernel thrice as long to compile
    "wide": PagedAttention(2, 1, 256, 256, 1 / 16),
    "seven-shared": PagedAttention(14, 2, 128, 128, 0.09),
}
#: Keys of a latent and columns that heads share; values of its width would take long to compile.
LATENT = PagedAttention(5, 1, 576, 64, 0.07, kv_dtype="int8", query_bits=8)
#: Sinks, slopes and chunks, over narrow pools; and with a softcap and odd dimensions.
VARIANT = PagedAttention(4, 2, 32, 32, 0.2, window=300, chunk=270, sinks=True, slopes=True)
CAPPED = PagedAttention(3, 3, 24, 40, 0.2, softcap=9.0, chunk=96, sinks=True, slopes=True)

#: int4 pools, and int8 ones of the latest tokens: of a tile or so; of more than a window holds in a
#: tile of rows; and beside all else that a layer can have. A softcap, which doubles the time of a
#: compile, is where a compile is shortest. All on one target: on the other the first one has the
#: same bits.
RECENT = replace(SMALL, kv_dtype="int4", query_bits=8, recent=32, recent_group=1, groups=2)
RECENTS = {
    "recent": RECENT,
    "recent-of-a-window": replace(
        RECENT, group=1, recent_group=0, recent=20, window=100, heads=9, kv_heads=1, softcap=9.0
    ),
    "recent-variant": replace(
        VARIANT, kv_dtype="int4", query_bits=8, recent=40, recent_group=1, groups=2
    ),
}


def best(dtype: str) -> Isa:
    """What this machine runs for pools of ``dtype``: but for bfloat16, of a named target where it
    can, whose kernels other tests compile as well."""
    named = known_targets()[TARGETS[0]]
    own = dtype == "bfloat16" or named.missing_on(host_features())
    return NATIVE if own else isa_of(named)


def _of(config: PagedAttention, dtype: str, bits: int) -> PagedAttention:
    """The configuration, with the next larger dimensions that pools of the type take."""
    dims = taken_dim(dtype, config.key_dim), taken_dim(dtype, config.value_dim)
    return replace(config, key_dim=dims[0], value_dim=dims[1], kv_dtype=dtype, query_bits=bits)


def _case(name: str, at: int, *, long: bool) -> ParameterSet:
    """A configuration in one of the arithmetics, on one of the targets."""
    arithmetic, target = ARITHMETICS[at % len(ARITHMETICS)], TARGETS[at % 2]
    return pytest.param(
        _of(CONFIGS[name], *arithmetic),
        target,
        id="-".join(map(str, (name, *arithmetic, target))),
        marks=[pytest.mark.long] if long else [],
    )


#: Every configuration in two arithmetics, each on another target, one of which is enough for `make
#: test`, and every arithmetic on both targets; the widest one in all, of which it has three, and
#: not bfloat16 on a target that has it in another shape.
NAMED = [name for name in CONFIGS for _ in range(len(ARITHMETICS) if name == "wide" else 2)]
CASES = (
    [
        _case(name, at, long=at in (4, 5, 8, 9, 12, 13, 14, 17, 19))
        for at, name in enumerate(NAMED, 3)
    ]
    + [
        pytest.param(_of(config, dtype, bits), TARGETS[j % 2], id=f"variant-{dtype}-{bits}")
        for j, (config, dtype, bits) in enumerate(
            [
                (CAPPED, "float32", 0),
                (VARIANT, "bfloat16", 0),
                (VARIANT, "int8", 8),
                (VARIANT, "int4", 8),
            ]
        )
    ]
    + [pytest.param(config, TARGETS[0], id=name) for name, config in RECENTS.items()]
    + [pytest.param(LATENT, target, id=f"latent-{target}") for target in TARGETS[:2]]
)
#: Least signal to noise, dB, and largest error. bfloat16: a weight within float32's rounding of a
#: tie may go the other way. int8: operands are fixed-point numbers of 14 and 15 bits, or
#: queries the int8 that the oracle takes, too.
BOUNDS = {
    "float32": (120, 1e-5),
    "float16": (120, 1e-5),
    "bfloat16": (80, 4e-3),
    "int8": (65, 4e-3),
    "int4": (65, 4e-3),
}


@pytest.mark.parametrize(("config", "target"), CASES)
def test_against_float64(config: PagedAttention, target: str) -> None:
    least, largest = BOUNDS[config.kv_dtype]
    step = sequences(config, MIXED)
    out = attend(config, isa_named(target), step, 16, padding=2)
    expected = oracle(config, step)
    assert not out[-2:].any()
    assert sqnr(out[:-2], expected) > least
    assert np.abs(out[:-2] - expected).max() < largest


@pytest.mark.parametrize(("dtype", "bits"), ARITHMETICS)
def test_bits_do_not_depend_on_instruction_set_or_block_size(dtype: str, bits: int) -> None:
    config = replace(SMALL, kv_dtype=dtype, query_bits=bits)
    check_isas_and_block_sizes(config)


def test_bits_with_recent_pools_do_not_depend_on_instruction_set_or_block_size() -> None:
    check_isas_and_block_sizes(RECENT)


def check_isas_and_block_sizes(config: PagedAttention) -> None:
    step = sequences(config, MIXED)
    reference = attend(config, isa_named(TARGETS[0]), step, 16)
    for block_size in (16, 48, 128, 512):
        out = attend(config, isa_named(TARGETS[1]), step, block_size)
        np.testing.assert_array_equal(out, reference)


@pytest.mark.parametrize(
    ("name", "dtype", "bits", "target"),
    [
        *(("gqa", *each, "") for each in ARITHMETICS),
        # on the targets of their kernels above
        ("mqa", "float32", 0, TARGETS[0]),
        ("window-softcap", "int8", 0, TARGETS[1]),
    ],
)
def test_bits_do_not_depend_on_batch_mates_or_chunks(
    name: str, dtype: str, bits: int, target: str
) -> None:
    config = _of(CONFIGS[name], dtype, bits)
    check_batch_mates_and_chunks(config, isa_named(target) if target else best(dtype))


def test_bits_of_variants_do_not_depend_on_batch_mates_or_chunks() -> None:
    config = replace(VARIANT, kv_dtype="int8", query_bits=8)
    check_batch_mates_and_chunks(config, best("int8"))


@pytest.mark.parametrize("config", RECENTS.values(), ids=RECENTS)
def test_bits_with_recent_pools_do_not_depend_on_batch_mates_or_chunks(
    config: PagedAttention,
) -> None:
    check_batch_mates_and_chunks(config, isa_named(TARGETS[0]))


def check_batch_mates_and_chunks(config: PagedAttention, isa: Isa) -> None:
    check_rows_alone(config, isa, sequences(config, MIXED))


@pytest.mark.parametrize(("dtype", "bits"), ARITHMETICS)
@settings(max_examples=15, deadline=None, database=None)
@given(data=st.data())
def test_any_split_into_chunks_gives_the_same_bits(
    data: st.DataObject, dtype: str, bits: int
) -> None:
    config = replace(SMALL, kv_dtype=dtype, query_bits=bits)
    rows = data.draw(st.integers(2, 60))
    tokens = rows + data.draw(st.integers(0, 600))
    sequence = sequences(config, [(rows, tokens)])[0]
    cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1), max_size=4)))
    bounds = list(zip([0, *cuts], [*cuts, rows], strict=True))
    whole = attend(config, best(dtype), [sequence], 16)
    chunks = [attend(config, best(dtype), [part(sequence, a, b)], 48) for a, b in bounds]
    np.testing.assert_array_equal(np.concatenate(chunks), whole)


@pytest.mark.parametrize(
    "config",
    [*(replace(SMALL, kv_dtype=dtype, query_bits=bits) for dtype, bits in ARITHMETICS), RECENT],
)
def test_bits_do_not_depend_on_threads(config: PagedAttention) -> None:
    isa = isa_named("x86-64-v3")
    set_threads = tvm.get_global_func("runtime.config_threadpool")
    for lengths in (MIXED, [(1, 3000)], [(2, 40)]):
        step = sequences(config, lengths)
        results = []
        for threads in (1, 2):
            set_threads(1, threads)
            results.append(attend(config, isa, step, 32))
        np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("dtype", "bits", "target", "used", "unused"),
    [
        ("float32", 0, "x86-64-v4-vnni", ("vfmadd", "zmm"), ()),
        ("float32", 0, "x86-64-v3", ("vfmadd", "ymm"), ("zmm",)),
        ("float16", 0, "x86-64-v4-vnni", ("vcvtph2ps", "vfmadd", "zmm"), ()),
        ("float16", 0, "x86-64-v3", ("vcvtph2ps", "vfmadd", "ymm"), ("zmm",)),
        ("bfloat16", 0, "native", ("vdpbf16ps",), ()),
        ("bfloat16", 0, "x86-64-v4-vnni", ("vfmadd", "zmm"), ("vdpbf16ps",)),
        ("bfloat16", 0, "x86-64-v3", ("vfmadd", "ymm"), ("zmm",)),
        ("int8", 8, "x86-64-v4-vnni", ("vpdpbusd", "zmm"), ()),
        ("int8", 0, "x86-64-v4-vnni", ("vpdpbusd", "zmm"), ()),
        ("int8", 0, "x86-64-v3", ("vpmaddubsw", "vpmaddwd"), ("zmm",)),
        ("int4", 8, "x86-64-v4-vnni", ("vpdpbusd", "vpmullw", "zmm"), ()),
        ("int4", 0, "x86-64-v3", ("vpmaddubsw", "vpmullw"), ("zmm",)),
    ],
)
def test_assembly_uses_the_instructions_of_its_target(
    dtype: str, bits: int, target: str, used: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    only_here()
    isa = NATIVE if target == "native" else isa_named(target)
    if "vdpbf16ps" in used and not isa.bf16:
        pytest.skip("this machine lacks avx512_bf16")
    config = replace(SMALL, kv_dtype=dtype, query_bits=bits)
    text = compiled(config, isa).mod.inspect_source("s")
    assert all(name in text for name in used)
    assert not any(name in text for name in unused)


def test_shapes_without_a_kernel_are_refused() -> None:
    isa = isa_named(TARGETS[1])
    with pytest.raises(UnsupportedError, match="5 heads cannot share 2 KV heads evenly"):
        PagedAttention(5, 2, 64, 64, 1.0)
    with pytest.raises(UnsupportedError, match="queries of 8 bits have no kernel for bfloat16"):
        PagedAttention(4, 2, 64, 64, 1.0, kv_dtype="bfloat16", query_bits=8)
    with pytest.raises(UnsupportedError, match="key dimension 20 is no positive multiple of 8"):
        paged_attention(PagedAttention(4, 2, 20, 64, 1.0), isa)
    with pytest.raises(UnsupportedError, match="keys of 520 channels are too wide for queries of"):
        PagedAttention(4, 2, 520, 64, 1.0, kv_dtype="int8")
