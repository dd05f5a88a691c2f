"""One row of logits made ready: a padded copy, its adjustments, and its largest values."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    Register,
    bind,
    load,
    register,
    round_up,
    scratch,
    splat,
    store,
    tree_max,
    tree_sum,
)
from optc.backends.tvm.kernels.dsl.vectors import first_lanes, load_part
from optc.backends.tvm.kernels.sampling.math import distance, fenced, i64, mass
from optc.backends.tvm.kernels.sampling.select import WIDE, when

#: Tokens of which only the largest logit is looked at first.
CHUNK = 64
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
_LOWEST = float("-inf")


@dataclass(frozen=True)
class Values:
    """A row being sampled.

    Attributes:
        vocab: V.
        logits: float32 [Vp], padded to a multiple of 64 with minus infinity.
        peaks: float32 [Vp / 64] the largest of each chunk.
        largest: float32 register: the largest of all.
        worst: int32x16 register: the largest bit pattern of a magnitude met; NaN is above infinity.
    """

    vocab: int
    logits: Expr
    peaks: Expr
    largest: Register
    worst: Register

    @classmethod
    def allocate(cls, vocab: int) -> Values:
        """Memory for a row."""
        padded = round_up(vocab, CHUNK)
        return cls(
            vocab,
            scratch((padded,)),
            scratch((padded // CHUNK,)),
            register(_LOWEST, lanes=1),
            register(0, "int32"),
        )

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return round_up(self.vocab, CHUNK) // CHUNK

    def copy(self, source: Expr, row: Expr) -> None:
        """Take row ``row`` of ``source`` float32 [R, V]."""
        whole, rest = divmod(self.vocab, LANES)
        with tir.serial(0, whole) as i:
            store(self.logits, load(source, row, i * LANES), i * LANES)
        start = whole * LANES
        lowest = splat(_LOWEST)
        if rest:
            value = load_part(source, rest, row, start)
            store(self.logits, tir.Select(first_lanes(rest), value, lowest), start)
            start += LANES
        for offset in range(start, self.chunks * CHUNK, LANES):
            store(self.logits, lowest, offset)

    def scan(self) -> None:
        """Find the peaks and the largest value, and look for NaN."""
        self.largest.set(splat(_LOWEST, lanes=1))
        with tir.serial(0, self.chunks) as chunk:
            parts = [bind(load(self.logits, chunk * CHUNK + o)) for o in range(0, CHUNK, LANES)]
            peak = bind(tree_max(_largest(parts, self.worst)))
            store(self.peaks, peak, chunk)
            self.largest.set(tir.max(self.largest.get(), peak))

    def mass(self, temperature: Expr) -> Expr:
        """Sum of the masses of all tokens, int64."""
        largest = bind(self.largest.get())
        total = register(i64(0, WIDE), "int64", WIDE)
        with tir.serial(0, self.chunks * CHUNK // WIDE) as i:
            far = distance(bind(load(self.logits, i * WIDE, lanes=WIDE)), largest, temperature)
            total.set(total.get() + mass(far))
        return tree_sum(total.get())

    def first_largest(self) -> Expr:
        """The lowest id of the largest logit."""
        chunk = register(0, "int32", 1)
        largest = bind(self.largest.get())
        with tir.While(self.peaks[chunk.get()] != largest):
            chunk.set(chunk.get() + 1)
        at = register(chunk.get() * CHUNK, "int32", 1)
        with tir.While(self.logits[at.get()] != largest):
            at.set(at.get() + 1)
        return bind(at.get())

    def nan(self) -> Expr:
        """True if a NaN was met."""
        return is_nan(self.worst)

    def mask(self, masks: Expr, row: Expr) -> None:
        """Make minus infinity what row ``row`` of ``masks`` uint32 [Q, ceil(V / 32)] forbids."""
        bits = tir.ramp(0, 1, LANES)
        one, zero = splat(1, "int32"), splat(0, "int32")
        with tir.serial(0, -(-self.vocab // LANES)) as i:
            word = bind(tir.reinterpret(masks[row, i // 2], dtype="int32"))
            half = bind(word >> (i % 2 * LANES))
            allowed = ((splat(half, "int32") >> bits) & one) != zero
            value = tir.Select(allowed, load(self.logits, i * LANES), splat(_LOWEST))
            store(self.logits, value, i * LANES)

    def penalize(self, tokens: Tokens, repetition: Expr, presence: Expr, frequency: Expr) -> None:
        """Apply the penalties (float32 scalars) of the tokens so far."""
        counts, logits = tokens.counts, self.logits
        for start, count, value in (
            (tokens.first, tokens.count, lambda at: 0),
            (tokens.first + tokens.prompt, tokens.count - tokens.prompt, lambda at: counts[at] + 1),
        ):
            with tir.serial(0, tir.max(count, 0)) as i:
                at = bind(tokens.ids[start + i])
                store(counts, tir.cast(value(at), "int32"), at)
        with tir.serial(0, tokens.count) as i:
            at = bind(tokens.ids[tokens.first + i])
            count = bind(counts[at])
            with when(count >= 0):  # not met before
                store(counts, tir.int32(-1), at)
                old = bind(logits[at])
                zero = splat(0.0, lanes=1)
                scaled = bind(tir.Select(old > zero, old / repetition, fenced(old * repetition)))
                often = fenced(frequency * tir.cast(count, "float32"))
                lowered = bind(bind(scaled - presence) - often)
                store(logits, tir.Select(count > 0, lowered, scaled), at)

    def bias(self, ids: Expr, biases: Expr, first: Expr, count: Expr) -> None:
        """Add biases to some tokens' logits."""
        with tir.serial(0, count) as i:
            at = bind(ids[first + i])
            store(self.logits, self.logits[at] + biases[first + i], at)


@dataclass(frozen=True)
class Tokens:
    """Prompt and output of a row: ``count`` of ``ids`` int32 from ``first`` on, the first
    ``prompt`` of them the prompt's. ``counts`` is scratch int32 [V]."""

    ids: Expr
    first: Expr
    count: Expr
    prompt: Expr
    counts: Expr


def greedy(source: Expr, row: Expr, vocab: int) -> tuple[Expr, Expr, Expr]:
    """The lowest id of the largest of row ``row`` of ``source`` float32 [R, V], whether the row
    holds a NaN, and whether it holds nothing above minus infinity: reads the logits once."""
    worst, best = register(0, "int32"), register(_LOWEST, lanes=1)
    where = register(0, "int32", 1)

    def take(start: Expr, parts: list[Expr]) -> None:
        peak = bind(tree_max(_largest(parts, worst)))
        with when(peak > best.get()):
            best.set(peak)
            where.set(start)

    whole, rest = divmod(vocab, CHUNK)
    with tir.serial(0, whole) as chunk:
        start = bind(chunk * CHUNK)
        take(start, [bind(load(source, row, start + o)) for o in range(0, CHUNK, LANES)])
    if rest:
        take(
            tir.int32(whole * CHUNK),
            [
                bind(_filled(source, row, offset, min(LANES, vocab - offset)))
                for offset in range(whole * CHUNK, vocab, LANES)
            ],
        )
    nan = bind(is_nan(worst))
    with when(tir.Not(nan)), tir.While(source[row, where.get()] != best.get()):
        where.set(where.get() + 1)
    return bind(where.get()), nan, bind(best.get() == tir.float32(_LOWEST))


def is_nan(worst: Register) -> Expr:
    """True if the largest magnitude met is a NaN's."""
    return tree_max(worst.get()) > _INFINITY


def _filled(source: Expr, row: Expr, offset: int, count: int) -> Expr:
    value = load_part(source, count, row, offset)
    return value if count == LANES else tir.Select(first_lanes(count), value, splat(_LOWEST))


def _largest(parts: list[Expr], worst: Register) -> Expr:
    """The largest of each lane of some vectors; ``worst`` learns of their magnitudes."""
    peak = parts[0]
    seen = worst.get()
    for part in parts:
        bits = tir.reinterpret(part, dtype=f"int32x{LANES}")
        seen = tir.max(seen, bits & splat(_MAGNITUDE, "int32"))
        if part is not parts[0]:
            peak = tir.max(peak, part)
    worst.set(seen)
    return bind(peak)
