"""The budget: bits a weight, a size of all weights, or a speed that bytes read allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from optc.errors import InputError
from optc.system.units import parse_bytes

_NUMBER = r"(\d+(?:\.\d+)?)"
_BITS = re.compile(rf"{_NUMBER}\s*bpw", re.ASCII)
_SPEED = re.compile(rf"{_NUMBER}\s*tok/s(?:\s*@\s*{_NUMBER}\s*GB/s)?", re.ASCII)
_HINT = "write 3.5bpw, a size such as 6.5MB, or 40tok/s@50GB/s"


@dataclass(frozen=True)
class Footprint:
    """The size of a model beside the weights that are chosen for.

    Attributes:
        weights: How many quantized weights there are, those that are not chosen for included.
        fixed_bits: Bits of quantized weights that are not chosen for.
        fixed_read: Whether a decode step reads these; a table of embeddings it does not.
        float_bits: Bits of all others.
        kv_bytes: Of keys and values that a decode step reads.
    """

    weights: int
    fixed_bits: int = 0
    fixed_read: bool = False
    float_bits: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True)
class Budget:
    """A budget.

    Attributes:
        kind: ``bits`` of a weight, ``bytes`` of all weights, or ``speed`` of decoding.
        amount: Bits a weight, bytes, or tokens a second of one sequence.
        bandwidth: Bytes a second that the machine reads; for ``speed``.
    """

    kind: Literal["bits", "bytes", "speed"]
    amount: Fraction
    bandwidth: Fraction = Fraction(0)

    @classmethod
    def read(cls, text: str, where: str) -> Budget:
        """The budget that a text states: ``3.5bpw``, ``6.5MB``, ``40tok/s@50GB/s``.

        Raises:
            InputError: It states none; says how one is written.
        """
        if match := _BITS.fullmatch(text.strip()):
            return cls._checked("bits", match[1], text, where)
        if match := _SPEED.fullmatch(text.strip()):
            if match[2] is None:
                raise InputError(
                    f"{text!r} does not say how fast the machine reads",
                    where=where,
                    hint=f"write {text.strip()}@50GB/s, or give it by --budget, which measures",
                )
            bandwidth = Fraction(match[2]) * 10**9
            return cls._checked("speed", match[1], text, where, bandwidth)
        try:
            if re.fullmatch(rf"\s*{_NUMBER}\s*", text):
                raise InputError("", where=where)
            return cls("bytes", Fraction(parse_bytes(text, where)))
        except InputError as error:
            raise InputError(f"{text!r} is no budget", where=where, hint=_HINT) from error

    @classmethod
    def _checked(
        cls,
        kind: Literal["bits", "speed"],
        amount: str,
        text: str,
        where: str,
        bandwidth: Fraction = Fraction(1),
    ) -> Budget:
        if not (Fraction(amount) and bandwidth):
            raise InputError(f"{text!r} is no budget", where=where, hint=_HINT)
        return cls(kind, Fraction(amount), bandwidth)

    def most_bits(self, model: Footprint) -> int:
        """Bits that the weights that are chosen for may have; negative if there is no room."""
        if self.kind == "bits":
            return int(self.amount * model.weights - model.fixed_bits)
        if self.kind == "bytes":
            return int(self.amount * 8 - model.fixed_bits - model.float_bits)
        read = 8 * (self.bandwidth / self.amount - model.kv_bytes) - model.float_bits
        return int(read - model.fixed_bits * model.fixed_read)

    def reached(self, bits: int, model: Footprint) -> str:
        """The amount that weights of so many bits reach, in the budget's unit, as text."""
        if self.kind == "bits":
            return f"{(bits + model.fixed_bits) / model.weights:.3f}bpw"
        if self.kind == "bytes":
            return f"{(bits + model.fixed_bits + model.float_bits) / 8e6:.3f}MB"
        read = (bits + model.fixed_bits * model.fixed_read + model.float_bits) / 8
        return f"{float(self.bandwidth) / (read + model.kv_bytes):.1f}tok/s"
