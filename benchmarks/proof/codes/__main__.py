"""The gain of codes other than evenly spaced integers, weights alone, after GPTQ.

    python -m benchmarks.proof.codes [--windows 60] [--only TEXT]… [--json FILE]

Layers of ``examples/models/pycode`` are rounded by GPTQ with the Hessians of the float32 model and
64 windows of calibration text; head, embedding and activations stay float32. ``integer`` is what
the engines have: integer scales and zero points of groups. ``even`` are evenly spaced levels with
real scales and offsets, ``learned`` a table of a tensor, ``learned by 4 rows`` of every 4 rows; a
scale and an offset count as the 16 bits that they have as integers. ``whole to`` are learned tables
of whole numbers up to that one, with integer scales, as registers can hold them. ``stored as`` are
the types of ``quantize-weights: {format: …}``, and ``trellis`` is `trellis`, by bits and bits of
the state.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.proof.codes import codebook, trellis
from benchmarks.proof.codes.layers import Float32, Judge, Layer, read_layers
from optc.passes.numerics.affine import dequantize_rows
from optc.passes.numerics.gptq.factor import factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.float_formats.block_fp4 import tensor_scale
from optc.passes.quantize.float_formats.formats import FORMATS, NVFP4
from optc.passes.quantize.float_formats.rows import round_rows

Made = tuple[float, list[Float32]]
#: Bits and size of groups.
GRIDS = ((4, 64), (3, 64), (2, 64))
#: Beside them, what the engines have at these.
BESIDE = ((4, 32), (3, 32), (2, 32), (2, 128))
#: Rows of a table that is for all rows of a tensor.
ALL = 1 << 20
#: Greatest whole level of a table that is looked up in registers; scales are up to 255 over that.
GREATEST = {4: (30, 45), 3: (14, 21, 28), 2: (6, 12)}
#: Bits, bits of the state, whether the inputs are rotated.
TRELLISES = ((2, 8, False), (2, 8, True), (2, 12, True), (3, 9, False), (3, 9, True))


def integer(layers: Sequence[Layer], bits: int, group: int) -> Made:
    """As the engines have it."""
    scheme = Scheme(bits, group, False, integer_scales=True)
    weights = [
        dequantize_rows(gptq_rows(one.weight, factor_of(one.hessian, group), scheme), group)
        for one in layers
    ]
    return _grouped(bits, group) + _mean(layers, lambda k: 32 / k), weights


def even(layers: Sequence[Layer], bits: int, group: int) -> Made:
    """Evenly spaced levels."""
    table = codebook.evenly(bits)
    return _grouped(bits, group), [codebook.gptq(one, table, group) for one in layers]


def learned(layers: Sequence[Layer], bits: int, group: int, rows: int = ALL) -> Made:
    """Learned tables; those of few rows are int8 levels beside the weights."""
    weights = [codebook.gptq(one, _table(one, bits, group, rows), group) for one in layers]
    return _grouped(bits, group) + _mean(layers, lambda k: (8 << bits) / rows / k), weights


def registers(layers: Sequence[Layer], bits: int, group: int, greatest: int) -> Made:
    """Learned tables of a tensor, as whole numbers that registers can hold."""
    weights = []
    for one in layers:
        whole = codebook.whole_levels(_table(one, bits, group, ALL)[:, :1], greatest)
        weights.append(codebook.gptq(one, whole, group, whole=True))
    return _grouped(bits, group) + _mean(layers, lambda k: 32 / k), weights


_learned: dict[tuple[Any, ...], Float32] = {}


def _table(layer: Layer, bits: int, group: int, rows: int) -> Float32:
    key = layer.names, bits, group, rows
    if key not in _learned:
        diagonal = layer.hessian.diagonal().astype(np.float32)
        _learned[key] = codebook.learned(layer.weight, diagonal, bits, group, rows)
    return _learned[key]


def stored(layers: Sequence[Layer], name: str, method: str) -> Made:
    """A float type of `optc.passes.quantize.float_formats`; one scale of each layer's tensor."""
    form, weights = FORMATS[name], []
    for one in layers:
        whole = 1.0
        if form is NVFP4:
            whole = float(tensor_scale(float(np.abs(one.weight).max())))
        factor = None
        if method == "gptq":
            factor = partial(factor_of, one.hessian, form.group_size)
        weights.append(round_rows(one.weight, form, whole=whole, factor=factor).wide(whole))
    bits = _mean(layers, lambda k: form.bits + form.scale_bits / (form.group_size or k))
    return bits, weights


def with_trellis(layers: Sequence[Layer], bits: int, state: int, *, rotate: bool) -> Made:
    """A sequence's first state and a row's float scale count."""
    table = trellis.learned_table(bits, state)
    print(json.dumps({"distortion": trellis.distortion(table, bits)}), flush=True)
    found: dict[int, Float32] = {}
    for width in sorted({one.weight.shape[1] for one in layers}):
        here = [i for i, one in enumerate(layers) if one.weight.shape[1] == width]
        turned = trellis.gptq([layers[i] for i in here], table, bits, rotate=rotate)
        found |= dict(zip(here, turned, strict=True))
    first = (state - bits) / trellis.SEQUENCE
    return bits + first + _mean(layers, lambda k: 32 / k), [found[i] for i in range(len(layers))]


def trials(layers: Sequence[Layer]) -> dict[str, Callable[[], Made]]:
    """By name."""
    found: dict[str, Callable[[], Made]] = {}
    for bits, group in GRIDS:
        label = f"{bits} bits, groups of {group}"
        found[f"integer, {label}"] = partial(integer, layers, bits, group)
        found[f"even, {label}"] = partial(even, layers, bits, group)
        found[f"learned, {label}"] = partial(learned, layers, bits, group)
        found[f"learned by 4 rows, {label}"] = partial(learned, layers, bits, group, 4)
        for greatest in GREATEST[bits]:
            name = f"learned, whole to {greatest}, {label}"
            found[name] = partial(registers, layers, bits, group, greatest)
    for bits, group in BESIDE:
        name = f"integer, {bits} bits, groups of {group}"
        found[name] = partial(integer, layers, bits, group)
    for form, method in product(("fp8", "nf4", "mxfp4", "nvfp4"), ("round", "gptq")):
        found[f"stored as {form}, {method}"] = partial(stored, layers, form, method)
    for bits, state, rotate in TRELLISES:
        label = f"trellis, {bits} bits, state of {state}{', rotated' * rotate}"
        found[label] = partial(with_trellis, layers, bits, state, rotate=rotate)
    return found


def _grouped(bits: int, group: int) -> float:
    """A scale and an offset of a byte each."""
    return bits + 16 / group


def _mean(layers: Sequence[Layer], bits: Callable[[int], float]) -> float:
    """Bits a weight, where a row of K weights has ``bits(K)`` each."""
    counts = [one.weight.size for one in layers]
    each = [bits(one.weight.shape[1]) for one in layers]
    return float(np.average(each, weights=counts))


def rounded(layers: Sequence[Layer], make: Callable[[], Made]) -> tuple[float, dict[str, Float32]]:
    """Bits of a weight, and the tensors of one trial."""
    bits, weights = make()
    pairs = zip(layers, weights, strict=True)
    return bits, {name: part for one, weight in pairs for name, part in one.tensors(weight)}


def main() -> None:
    """Measure and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.codes", description=__doc__)
    parser.add_argument("--windows", type=int, default=60, help="of 512 tokens")
    parser.add_argument("--only", action="append", default=[], help="trials whose name holds TEXT")
    parser.add_argument("--json", type=Path, help="what was measured is merged into this file")
    args = parser.parse_args()
    known = json.loads(args.json.read_text()) if args.json and args.json.is_file() else []
    found: dict[str, dict[str, Any]] = {one["trial"]: one for one in known}
    layers, judge = read_layers(), Judge(args.windows)
    for name, make in trials(layers).items():
        if args.only and not any(text in name for text in args.only):
            continue
        bits, tensors = rounded(layers, make)
        found[name] = {"trial": name, "bits_per_weight": round(bits, 3), **judge.figures(tensors)}
        print(json.dumps(found[name]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(list(found.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
