"""Sampling: from rows of logits to tokens, as `optc.runtime.sampling.sampler` defines it, bit for
bit.

Nothing is computed for the whole vocabulary that a bound can rule out: filters look only at tokens
that they may keep, and noise is turned into a Gumbel value only where it may win. Bounds decide
what is looked at, never the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    KernelBuilder,
    Register,
    bind,
    kernel,
    register,
    store,
)
from optc.backends.tvm.kernels.sampling.draw import draw_among, draw_from_all
from optc.backends.tvm.kernels.sampling.filters import filtered, likeliest
from optc.backends.tvm.kernels.sampling.math import distance, f64, log
from optc.backends.tvm.kernels.sampling.noise import HIGH_IR, Noise
from optc.backends.tvm.kernels.sampling.rows import Tokens, Values, greedy
from optc.backends.tvm.kernels.sampling.select import Candidates, when
from optc.runtime.sampling.sample_batch import FIELDS, NAN, NOTHING_ALLOWED
from optc.runtime.sampling.sampler_math import WHOLE_MASS


@dataclass(frozen=True)
class Sampling:
    """Sampling from rows of ``vocab`` logits."""

    vocab: int


def sampling(config: Sampling, isa: Isa) -> tvm.tirx.PrimFunc:
    """logits f32 [R,V], integers i64 [N,F], numbers f64 [N,F], tokens i32 [t], bias_ids i32 [b],
    biases f32 [b], masks u32 [m,ceil(V/32)] -> drawn i32 [N], best i32 [N],
    drawn_logprobs f64 [N], top_ids i32 [N,L], top_logprobs f64 [N,L].

    ``integers`` and ``numbers`` are views of the same records
    (`optc.runtime.sampling.sample_batch`), whose results these are. ``isa`` changes nothing: every
    instruction set runs the same operations.
    """
    with kernel("sampling") as builder:
        operands = _Operands.declare(builder, config.vocab)
        imported = tir.attr(0, "pragma_import_llvm", HIGH_IR)
        with imported, tir.parallel(0, operands.rows) as row:
            _sample(operands, row)
    return builder.finish()


@dataclass(frozen=True)
class _Operands:
    vocab: int
    rows: Expr
    logits: Expr
    integers: Expr
    numbers: Expr
    tokens: Expr
    bias_ids: Expr
    biases: Expr
    masks: Expr
    drawn: Expr
    best: Expr
    drawn_logprobs: Expr
    top_ids: Expr
    top_logprobs: Expr

    @classmethod
    def declare(cls, builder: KernelBuilder, vocab: int) -> _Operands:
        given, rows, tokens, biases, masks, top = (builder.size() for _ in range(6))
        records = (rows, len(FIELDS))
        return cls(
            vocab,
            rows,
            builder.argument("logits", (given, vocab)),
            builder.argument("integers", records, "int64"),
            builder.argument("numbers", records, "float64"),
            builder.argument("tokens", (tokens,), "int32"),
            builder.argument("bias_ids", (biases,), "int32"),
            builder.argument("biases", (biases,)),
            builder.argument("masks", (masks, -(-vocab // 32)), "uint32"),
            builder.argument("drawn", (rows,), "int32"),
            builder.argument("best", (rows,), "int32"),
            builder.argument("drawn_logprobs", (rows,), "float64"),
            builder.argument("top_ids", (rows, top), "int32"),
            builder.argument("top_logprobs", (rows, top), "float64"),
        )


@dataclass(frozen=True)
class _Record:
    """The parameters of a row."""

    operands: _Operands
    row: Expr

    def integer(self, name: str) -> Expr:
        """An int32 field."""
        return bind(tir.cast(self.operands.integers[self.row, FIELDS.index(name)], "int32"))

    def word(self, name: str) -> Expr:
        """A field of 64 bits."""
        value = self.operands.integers[self.row, FIELDS.index(name)]
        return bind(tir.reinterpret(value, dtype="uint64"))

    def number(self, name: str) -> Expr:
        """A float64 field."""
        return bind(self.operands.numbers[self.row, FIELDS.index(name)])


def _sample(operands: _Operands, row: Expr) -> None:
    record = _Record(operands, row)
    source = record.integer("logit_row")
    with tir.If(record.integer("plain") != 0):
        with tir.Then():
            token, nan, nothing = greedy(operands.logits, source, operands.vocab)
            _write(operands, row, token, nan, nothing)
            store(operands.best, tir.Select(nan, tir.int32(NAN), token), row)
        with tir.Else():
            _sample_fully(operands, record, source)


def _write(operands: _Operands, row: Expr, token: Expr, nan: Expr, nothing: Expr) -> None:
    failed = tir.Select(nan, tir.int32(NAN), tir.int32(NOTHING_ALLOWED))
    store(operands.drawn, tir.Select(tir.Or(nan, nothing), failed, token), row)


def _sample_fully(operands: _Operands, record: _Record, source: Expr) -> None:
    values = Values.allocate(operands.vocab)
    candidates = Candidates.empty(values.chunks * 64)
    values.copy(operands.logits, source)
    values.scan()
    token, best = register(0, "int32", 1), register(NAN, "int32", 1)
    with when(tir.Not(values.nan())):
        best.set(values.first_largest())
    store(operands.best, best.get(), record.row)
    wants_logprobs = bind(record.integer("logprobs") >= 0)
    own_largest, whole = register(0.0, lanes=1), register(f64(0.0), "float64", 1)
    with when(tir.And(wants_logprobs, tir.Not(values.nan()))):
        own_largest.set(values.largest.get())
        whole.set(_report_likeliest(operands, record, values, candidates))
    _adjust(operands, record, values, candidates)
    nan = bind(values.nan())
    nothing = bind(values.largest.get() == tir.float32(float("-inf")))
    with when(tir.Not(tir.Or(nan, nothing))):
        _draw(record, values, candidates, token)
        with when(wants_logprobs):
            logit = bind(operands.logits[source, token.get()])
            far = distance(logit, own_largest.get(), f64(1.0))
            store(operands.drawn_logprobs, f64(0.0) - (far + whole.get()), record.row)
    _write(operands, record.row, token.get(), nan, nothing)


def _report_likeliest(
    operands: _Operands, record: _Record, values: Values, candidates: Candidates
) -> Expr:
    """Write the likeliest tokens; returns the logarithm of the sum of all masses."""
    wanted = record.integer("logprobs")
    whole = bind(tir.cast(values.mass(f64(1.0)), "float64") / f64(float(WHOLE_MASS)))
    logarithm = log(whole)

    def report(place: Expr, token: Expr, far: Expr) -> None:
        store(operands.top_ids, token, record.row, place)
        store(operands.top_logprobs, f64(0.0) - (far + logarithm), record.row, place)

    with when(wanted > 0):
        likeliest(values, candidates, wanted, report)
    return logarithm


def _adjust(operands: _Operands, record: _Record, values: Values, candidates: Candidates) -> None:
    """Apply mask, penalties and biases."""
    mask_row, count = record.integer("mask_row"), record.integer("token_count")
    biases = record.integer("bias_count")
    with when(mask_row >= 0):
        values.mask(operands.masks, mask_row)
    with when(count > 0):
        first, prompt = record.integer("first_token"), record.integer("prompt_tokens")
        # Candidates come later: their ids are free to count in.
        tokens = Tokens(operands.tokens, first, count, prompt, candidates.ids)
        names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
        values.penalize(tokens, *(bind(tir.cast(record.number(n), "float32")) for n in names))
    with when(biases > 0):
        first = record.integer("first_bias")
        values.bias(operands.bias_ids, operands.biases, first, biases)
    with when(tir.Or(mask_row >= 0, count + biases > 0)):
        values.scan()


def _draw(record: _Record, values: Values, candidates: Candidates, token: Register) -> None:
    temperature = record.number("temperature")
    best = values.first_largest()
    noise = Noise(record.word("seed"), record.word("completion"), record.word("position"))
    with tir.If(temperature == f64(0.0)):
        with tir.Then():
            token.set(best)
        with tir.Else(), tir.If(record.integer("filters") != 0):
            with tir.Then():
                filtered(
                    values,
                    candidates,
                    temperature,
                    record.integer("top_k"),
                    record.number("top_p"),
                    record.number("min_p"),
                    record.number("typical_p"),
                )
                token.set(draw_among(candidates, noise))
            with tir.Else():
                token.set(draw_from_all(values, noise, temperature, best))
