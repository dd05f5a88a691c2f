"""Multiply-adds and steps of passes of calibration and rounding, by counts.

Symbols: T tokens, S tokens of a window; a layer W [N, K]; D, the width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from optc.ir.experts import find_expert_linears
from optc.ir.linear import Linear, head_of
from optc.passes.quantize.gptq.rows import tile_rows
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.propagate.targets import TOKENS_PER_INPUT
from optc.pipeline.work import Work
from optc.reference.element_steps import OF_COMPARED_LOGIT, element_steps
from optc.reference.observers import linears_of
from optc.reference.partition import partition
from optc.reference.streams.gram import BLOCK
from optc.reference.streams.int8_products import INT8
from optc.reference.streams.products import FLOAT32

#: Element-wise operations on each weight while GPTQ rounds it, and what the calls for a column of a
#: tile take besides (`benchmarks.proof.plan_check`).
_GPTQ_STEPS, _COLUMN_STEPS = 100, 40_000
#: On each value that goes into a layer or comes out of it: it is kept, compared, and read for sums.
_VALUE_STEPS = 15
#: Of each weight and each candidate for the parameters of its group, and how many there are by bits
#: (`two_level`, `rounding`).
_CANDIDATE_STEPS = 6
_CANDIDATES = {2: 50, 3: 50}
_FEW_CANDIDATES = 8
#: Of each weight, while it is put into the order that a kernel reads.
_PACKING_STEPS = 10


def observing(model: ir.Model, text: TextShape, *, hessians: bool) -> Work:
    """A run of the float32 reference over a text, and the Hessian of each layer's input."""
    work = Work(float32=text.tokens * _of_experts(model), steps=elements(model, text))
    for linears in _blocks(model):
        work += Work(float32=text.tokens * (_weights(linears) + _attention(linears, text)))
        if hessians:
            work += Work(float32=sum(text.tokens * _half(k) for k in _inputs(linears)))
    return work


def propagating(
    model: ir.Model,
    text: TextShape,
    bits: int | None,
    products: tuple[str, str],
    *,
    gptq: bool,
    blocks: int = 0,
    value_steps: int = _VALUE_STEPS,
) -> Work:
    """Two runs side by side, Hessians, corrections and rounding.

    Args:
        model: Dense form.
        text: What is run through it.
        bits: Of a weight; None where weights are not rounded.
        products: How layers are multiplied, as they are and quantized.
        gptq: Whether GPTQ rounds.
        blocks: How many blocks; 0 are all.
        value_steps: Element-wise operations on a value that goes into a layer or comes out of it.
    """
    every = _blocks(model)
    width = min(_inputs(every[0]), default=0) if every else 0
    fused = products != (FLOAT32, FLOAT32)
    element_wise = 2 * elements(model, text, blocks, fused=fused)
    work = Work(float32=2 * text.tokens * _of_experts(model), steps=element_wise)
    for linears in every[:blocks] if blocks else every:
        for name in products:
            work += _products(name, text.tokens * _weights(linears))
        attention = (1.0 if fused else 2.0) * text.tokens * _attention(linears, text)
        work += Work(float32=attention)
        for k, rows in _by_input(linears):
            work += _corrected(k, rows, text, products[1], width, gptq=gptq)
            if bits is not None:
                work += rounding(sum(rows) * k, bits)
            work += Work(steps=value_steps * text.tokens * (k + sum(rows)))
            if gptq:
                work += sum((gptq_rounding(n, k, tile_rows(n, k)) for n in rows), start=Work())
    return work


def variants(model: ir.Model, text: TextShape, count: float, weights: float) -> Work:
    """So many variants of a model of so many weights, compared with it: each shares the blocks
    before its own, half of the model on average."""
    head = head_of(model)
    logits = 0 if head is None else head.weight.rows_shape[0]
    run = elements(model, text) / 2 + text.tokens * logits * OF_COMPARED_LOGIT
    return Work(float32=count * text.tokens * weights / 2, steps=count * run)


def inputs_of(model: ir.Model) -> list[tuple[int, list[int]]]:
    """For each value that layers of the body read, K and the rows N of these layers."""
    return [found for linears in _blocks(model) for found in _by_input(linears)]


def gptq_rounding(rows: int, columns: int, tile: int) -> Work:
    """GPTQ of a weight [rows, columns], ``tile`` rows at a time, beside the search of ranges."""
    steps = float(columns) * (_GPTQ_STEPS * rows + _COLUMN_STEPS * math.ceil(rows / tile))
    return Work(float32=rows * columns * columns / 2.0, steps=steps)


def rounding(weights: float, bits: int) -> Work:
    """The search of ranges and rounding of so many weights."""
    candidates = _CANDIDATES.get(bits, _FEW_CANDIDATES if bits < 8 else 1)
    return Work(steps=weights * candidates * _CANDIDATE_STEPS)


def reading(model: ir.Model, bits: int, head_bits: int, *, rounded: bool) -> Work:
    """Reading all weights once, to pack them; with rounding, unless that was done before."""
    body, head = sum(map(_weights, _blocks(model))), head_of(model)
    last = 0.0 if head is None else float(_size(head))
    experts = float(sum(one.weights for one in find_expert_linears(model.graph)))
    work = Work(steps=_PACKING_STEPS * (body + experts + last))
    work += rounding(last, head_bits) + rounding(experts, bits)
    return work if rounded else work + rounding(body, bits)


def _products(name: str, amount: float) -> Work:
    """So many multiply-adds of the products called ``name``."""
    return Work(**{name: amount})


def _corrected(
    k: int, rows: list[int], text: TextShape, products: str, width: int, *, gptq: bool
) -> Work:
    """The Hessian of an input of K values, its factors, and the corrections by it. Results of
    ``width`` values are taken to be added to a residual."""
    sums = products if products == INT8 else FLOAT32
    work = _products(sums, text.tokens * _half(k))
    factor = k**3 / 3.0  # Cholesky and the inverse of the root, a sixth each as multiply-adds
    if gptq:
        work += Work(float64=factor)
    if text.tokens >= TOKENS_PER_INPUT * k:
        drift = k
        if rows == [width]:
            drift = width
            work += _products(products, float(text.tokens) * width * k)
        work += _products(sums, float(text.tokens) * drift * k)
        work += Work(float64=factor + 1.0 * drift * k * k)
    return work


def _of_experts(model: ir.Model) -> float:
    """Multiply-adds of a token in the experts that it chooses."""
    return sum(one.weights_of_a_row for one in find_expert_linears(model.graph))


def _half(k: int) -> float:
    """Multiply-adds of a token in x xᵀ, of which half is computed, by blocks."""
    return k * (k + min(k, BLOCK)) / 2.0


def _attention(linears: list[Linear], text: TextShape) -> float:
    """Multiply-adds of a token with all tokens of its window, in scores and in values."""
    return 2.0 * text.window_tokens * min(_inputs(linears), default=0)


def elements(model: ir.Model, text: TextShape, blocks: int = 0, *, fused: bool = False) -> float:
    """Element-wise operations of a run over the text, through so many blocks; 0 are all. ``fused``
    as of `element_steps`."""
    every = partition(model).blocks
    run = every[:blocks] if blocks else every
    return text.tokens * sum(
        element_steps(one.nodes, text.window_tokens, fused=fused) for one in run
    )


def _blocks(model: ir.Model) -> list[list[Linear]]:
    return [linears_of(block) for block in partition(model).blocks]


def _by_input(linears: Iterable[Linear]) -> list[tuple[int, list[int]]]:
    """For each input, K and the rows N of the layers that read it."""
    found: dict[ir.Value, tuple[int, list[int]]] = {}
    for one in linears:
        rows, k = one.weight.rows_shape
        found.setdefault(one.x, (k, []))[1].append(rows)
    return list(found.values())


def _inputs(linears: Iterable[Linear]) -> list[int]:
    return [k for k, _ in _by_input(linears)]


def _weights(linears: Iterable[Linear]) -> float:
    return float(sum(map(_size, linears)))


def _size(linear: Linear) -> int:
    rows, columns = linear.weight.rows_shape
    return rows * columns
