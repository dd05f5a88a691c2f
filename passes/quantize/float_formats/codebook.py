"""Weights stored in a type of few bits: ``optc::CodebookMatMul``; activations stay float."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.experts import find_expert_linears
from optc.ir.functions import make_node
from optc.ir.graph import add_initializer, remove_unused, replace_node
from optc.ir.linear import Linear, find_linears, head_of, sources, weights_in
from optc.ir.pipeline.base import PassReport
from optc.ir.sources import sources_metadata
from optc.ir.weights import LazyWeight
from optc.passes.numerics.gptq.factor import FactorOf
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.quantize.float_formats.block_fp4 import largest, tensor_scale
from optc.passes.quantize.float_formats.formats import FP8, MXFP4, NF4, NVFP4, Format
from optc.passes.quantize.float_formats.rows import RoundedRows, round_rows

#: Formats of weights alone, by name.
STORED = {one.name: one for one in (FP8, NF4, MXFP4, NVFP4)}


def store_layers(model: ir.Model, form: Format, factors: Factors | None, where: str) -> PassReport:
    """Rewrite the linear layers of ``model`` in place; head and embedding stay float.

    Args:
        model: Any form with linear layers.
        form: What their weights are stored in.
        factors: Those of GPTQ; None rounds plainly.
        where: The pass, for messages.

    Raises:
        InputError: GPTQ knows nothing of a layer's inputs.
    """
    report, head = PassReport(), head_of(model)
    weights = bits = 0
    for experts in find_expert_linears(model.graph):
        reason = f"experts are not stored in {form.name}: they stay float"
        report.miss(experts.linear.matmul, reason, weights_in(experts.linear))
    for linear in find_linears(model):
        rows, columns = linear.weight.rows_shape
        if head is not None and linear.matmul is head.matmul:
            report.skip(linear.matmul, f"the head stays float: {form.name} is for layers")
            continue
        if form.group_size and columns % form.group_size:
            size = form.group_size
            reason = f"K={columns} of {linear.name} is not a multiple of {size}: it stays float"
            report.miss(linear.matmul, reason, rows * columns)
            continue
        factor = None
        if factors is not None:
            factor = factors.later(linear, form.group_size, where)
        rewrite_codebook(model, linear, form, factor)
        report.add(f"{form.label}, gptq" if factors else form.label)
        weights += rows * columns
        bits += rows * (columns * form.bits + _groups(columns, form) * form.scale_bits)
    remove_unused(model)  # float weights
    report.judge_missed(weights + report.missed, form.name)
    report.facts = {"weights": weights, "bits_per_weight": bits / weights if weights else 0.0}
    return report


def rewrite_codebook(
    model: ir.Model, linear: Linear, form: Format, factor: FactorOf | None = None
) -> None:
    """Replace a linear layer, its bias included, by ``optc::CodebookMatMul``.

    Args:
        model: The layer's.
        linear: K of its weight is a multiple of the format's group size.
        form: The format.
        factor: Gives GPTQ's factor when the weight is read; None rounds plainly.
    """
    graph, name = model.graph, linear.name
    codes, scales = _parts(linear, form, factor)
    operands = [
        linear.x,
        add_initializer(graph, codes, f"{name}.quantized", sources_metadata(sources([linear]))),
        Emitter(graph, name).constant("table", form.levels),
        add_initializer(graph, scales, f"{name}.scale"),
        linear.bias,
    ]
    attributes: dict[str, int | float | str] = {"format": form.name, "group_size": form.group_size}
    node = make_node(model, "CodebookMatMul", operands, attributes, name=linear.matmul.name)
    replace_node(linear.nodes, [node], [linear.output], node.outputs)


def _parts(linear: Linear, form: Format, factor: FactorOf | None) -> tuple[LazyWeight, LazyWeight]:
    """Codes [K, N], and float32 scales [K / group size, N], or [N] of channels."""
    weight, name = linear.weight, linear.name
    whole = float(tensor_scale(largest(weight))) if form is NVFP4 else 1.0

    def rounded(start: int, stop: int) -> RoundedRows:
        rows = weight.read_rows(start, stop)
        return round_rows(rows, form, whole=whole, factor=factor, name=name)

    count, columns = weight.rows_shape
    four = form.bits == 4
    codes = LazyWeight(
        lambda start, stop: np.searchsorted(form.levels, rounded(start, stop).values).astype(
            ml_dtypes.uint4 if four else np.uint8
        ),
        weight.rows_shape,
        ir.DataType.UINT4 if four else ir.DataType.UINT8,
        f"{name}.quantized",
        transposed=True,
    )

    def wide(start: int, stop: int) -> np.ndarray:
        scales = rounded(start, stop).scales * np.float32(whole)
        return scales if form.group_size else scales[:, 0]

    shape = (count, _groups(columns, form)) if form.group_size else (count,)
    scales = LazyWeight(
        wide, shape, ir.DataType.FLOAT, f"{name}.scale", transposed=bool(form.group_size)
    )
    return codes, scales


def _groups(columns: int, form: Format) -> int:
    return columns // (form.group_size or columns)
