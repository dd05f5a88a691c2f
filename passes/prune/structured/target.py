"""The size to come down to: a share, parameters, bytes, or a speed that bytes read allow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from optc.errors import InputError
from optc.passes.quantize.budget.amounts import Budget

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*x", re.ASCII)
_PARAMETERS = re.compile(r"(\d+(?:\.\d+)?)\s*([KMB]?)\s*parameters", re.ASCII)
_POWERS = {"": 0, "K": 3, "M": 6, "B": 9}
_HINT = "write 0.75x, 9.5M parameters, 20MB, or 40tok/s@50GB/s"


@dataclass(frozen=True)
class Amounts:
    """The amounts of a model, as it is or after something was taken out.

    Attributes:
        candidates: Weights in what a pass may take out.
        parameters: Of the whole model, a tied table once.
        weight_bits: Of all weights, as later passes will store them.
        read_bits: Of them, what a decode step reads.
        kv_bytes: Of keys and values that a decode step reads.
    """

    candidates: int
    parameters: int
    weight_bits: int = 0
    read_bits: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True)
class Target:
    """A size to come down to.

    Attributes:
        kind: ``share`` of what a pass may take out that stays, ``parameters`` or ``bytes`` of the
            whole model, or ``speed`` of decoding.
        amount: Share, parameters, bytes, or bytes that a decode step may read.
    """

    kind: Literal["share", "parameters", "bytes", "speed"]
    amount: Fraction

    @classmethod
    def read(cls, text: str, where: str) -> Target:
        """The target that a text states.

        Raises:
            InputError: It states none; says how one is written.
        """
        wanted = text.strip()
        if match := _SHARE.fullmatch(wanted):
            share = Fraction(match[1])
            if not 0 < share < 1:
                raise InputError(f"{text!r} is no share between 0 and 1", where=where, hint=_HINT)
            return cls("share", share)
        if match := _PARAMETERS.fullmatch(wanted):
            return cls("parameters", Fraction(match[1]) * 10 ** _POWERS[match[2]])
        try:
            budget = Budget.read(text, where)
        except InputError as error:
            hint = error.hint if "does not say how fast" in error.message else _HINT
            message = error.message if hint == error.hint else f"{text!r} is no target"
            raise InputError(message, where=where, hint=hint) from error
        if budget.kind == "bits":
            raise InputError(f"{text!r}: pruning takes no bits", where=where, hint=_HINT)
        if budget.kind == "bytes":
            return cls("bytes", budget.amount)
        return cls("speed", budget.bandwidth / budget.amount)

    def most(self, whole: Amounts) -> Fraction:
        """The most that may be left of the amount that it counts, of a model that has ``whole``."""
        return self.amount * whole.candidates if self.kind == "share" else self.amount

    def counted(self, amounts: Amounts) -> Fraction:
        """The amount that it counts."""
        count: dict[str, Callable[[Amounts], Fraction]] = {
            "share": lambda one: Fraction(one.candidates),
            "parameters": lambda one: Fraction(one.parameters),
            "bytes": lambda one: Fraction(one.weight_bits, 8),
            "speed": lambda one: Fraction(one.read_bits, 8) + one.kv_bytes,
        }
        return count[self.kind](amounts)

    def text(self, counted: Fraction) -> str:
        """An amount in words, for messages and reports."""
        if self.kind in ("bytes", "speed"):
            read = " read by a decode step" if self.kind == "speed" else ""
            return f"{float(counted) / 1e6:.3f}MB{read}"
        return f"{round(counted):,} {'weights' if self.kind == 'share' else 'parameters'}"
