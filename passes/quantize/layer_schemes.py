"""Schemes of single weights: how they are written, and what is nearest to one for a K."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from optc.errors import InputError
from optc.ir.linear import Linear, weights_in
from optc.ir.pipeline.base import PassReport
from optc.passes.numerics.scheme import Scheme
from optc.proof.reference.calibration import weights_of

#: Group sizes that every backend takes, the largest first.
GROUP_SIZES = (128, 64, 32)
#: Bits of a weight; all but 8 and 4 with integer scales of groups only.
BITS = (8, 6, 5, 4, 3, 2)
#: What a weight gets whose K no group size divides, and untied embeddings: safe and small.
PER_CHANNEL = Scheme(8, 0, True)
_FORMAT = re.compile(r"([2-8])(?:g(\d{1,3}))?", re.ASCII)


def read_format(text: str, base: Scheme, where: str) -> Scheme:
    """The scheme that a format names: ``8`` is int8 per channel, ``4g32`` are 4 bits in groups of
    32, ``4`` in groups of the size of ``base``; the rest is as in ``base``.

    Raises:
        InputError: It is no format, or none that goes with ``base``.
    """
    match = _FORMAT.fullmatch(text)
    bits = int(match[1]) if match else 0
    size = int(match[2]) if match and match[2] else base.group_size
    if bits == 8 and match and not match[2]:
        return PER_CHANNEL
    allowed = [b for b in BITS if b != 8] if base.integer_scales else [4]
    if bits not in allowed or size not in GROUP_SIZES:
        listed = ", ".join(str(b) for b in sorted(allowed))
        raise InputError(
            f"{text!r} is no format of a weight here",
            where=where,
            hint=f"8, or bits ({listed}) and a group's size, such as 4g32",
        )
    return replace(base, bits=bits, group_size=size)


def format_text(scheme: Scheme) -> str:
    """The scheme as `read_format` reads it."""
    return f"{scheme.bits}g{scheme.group_size}" if scheme.group_size else str(scheme.bits)


@dataclass(frozen=True)
class LayerSchemes:
    """Schemes by the name of the original tensor.

    Attributes:
        by_name: Those that are given.
        where: The pass, for messages.
    """

    by_name: Mapping[str, Scheme]
    where: str

    @classmethod
    def read(cls, texts: Iterable[str], base: Scheme, where: str) -> LayerSchemes:
        """Schemes from texts ``name=format``.

        Raises:
            InputError: A text is none, or names a tensor for the second time.
        """
        found: dict[str, Scheme] = {}
        for text in texts:
            name, equals, given = text.rpartition("=")
            if not equals or not name or name in found:
                why = "is named twice" if name in found else "is not tensor=format"
                raise InputError(f"{name if name in found else text!r} {why}", where=where)
            found[name] = read_format(given, base, f"{where}, {name}")
        return cls(found, where)

    def of(self, linear: Linear) -> Scheme | None:
        """The scheme of a layer's weight; None if none is given.

        Raises:
            InputError: Its weight was merged of tensors that have different ones.
        """
        names = weights_of(linear)
        found = {self.by_name.get(name) for name in names}
        if len(found) > 1:
            shown = (
                f"{name}: {'none' if (one := self.by_name.get(name)) is None else format_text(one)}"
                for name in names
            )
            raise InputError(
                f"tensors of one merged weight have different formats ({', '.join(shown)})",
                where=self.where,
                hint="give them the same",
            )
        return found.pop()

    def texts_of(self, linears: Iterable[Linear]) -> tuple[str, ...]:
        """Those of the weights of these layers, as `read` takes them."""
        known = {name for linear in linears for name in weights_of(linear)}
        return tuple(f"{n}={format_text(s)}" for n, s in self.by_name.items() if n in known)

    def check_names(self, linears: Iterable[Linear]) -> None:
        """Check that every name is that of a tensor of one of the layers.

        Raises:
            InputError: One is not.
        """
        known = {name for linear in linears for name in weights_of(linear)}
        strange = sorted(self.by_name.keys() - known)
        if strange:
            raise InputError(
                f"no linear layer has the weight {strange[0]!r}",
                where=self.where,
                hint=f"there are {', '.join(sorted(known)[:4])}, …",
            )


def fitting(wanted: Scheme, linear: Linear, report: PassReport) -> Scheme:
    """``wanted``, or for a K that its group size does not divide the largest smaller group size
    that does, else int8 per channel; that is reported."""
    columns = linear.weight.rows_shape[1]
    if not wanted.group_size or columns % wanted.group_size == 0:
        return wanted
    sizes = [g for g in GROUP_SIZES if g < wanted.group_size and columns % g == 0]
    scheme = replace(wanted, group_size=sizes[0]) if sizes else PER_CHANNEL
    reason = f"K={columns} of {linear.name} is not a multiple of {wanted.group_size}"
    missed = 0 if scheme.bits == wanted.bits else weights_in(linear)
    report.miss(linear.matmul, f"{reason}: {scheme.label}", missed)
    return scheme


def stored_bits(scheme: Scheme, rows: int, columns: int) -> int:
    """Bits of a weight in memory: float32 scales per channel, float16 ones in groups; integer ones
    and, beside them, zero points are bytes; float zero points take as much as scales."""
    groups = columns // scheme.group_size if scheme.group_size else 1
    if scheme.integer_scales:
        return rows * (columns * scheme.bits + groups * 16 + 32)
    scale = 16 if scheme.group_size else 32
    zero = 16 if scheme.float_zeros else 0 if scheme.symmetric else scheme.bits
    return rows * (columns * scheme.bits + groups * (scale + zero))
