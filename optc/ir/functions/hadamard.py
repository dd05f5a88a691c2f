"""`optc::BlockHadamard`: channels rotated block by block, before they are quantized
(`optc.runtime.executable.block_hadamard` has the meaning and its sources)."""

from __future__ import annotations

from math import isqrt

from optc.ir.functions.operator import Attributes, AttributeValue, Operator, integers, real

#: Of an operator that rotates what it quantizes: the size of blocks, 0 for none, and the channels.
HADAMARD_DEFAULTS: dict[str, AttributeValue] = {"hadamard": 0, "width": 0}


def hadamard_matrix(order: int) -> list[list[int]]:
    """Sylvester's matrix of a power of two: -1 where the indices share an odd number of bits."""
    return [[1 - 2 * ((i & j).bit_count() % 2) for j in range(order)] for i in range(order)]


def rotated(x: str, out: str, block: int, width: int, *, inverse: bool = False) -> str:
    """Statements: ``out`` is ``x`` [..., width] rotated in blocks, or rotated back.

    Raises:
        ValueError: ``block`` is no power of four, or larger than ``width``.
    """
    side = isqrt(block)
    if block < 4 or side * side != block or side & (side - 1) or width < block:
        raise ValueError(f"{width} channels have no Hadamard blocks of {block}")
    entries = ", ".join(f"{float(v)}" for row in hadamard_matrix(side) for v in row)
    lines = [
        f"{out}_entries = Constant <value_floats: floats = [{entries}]> ()",
        integers(f"{out}_square", (side, side)),
        f"{out}_matrix = Reshape ({out}_entries, {out}_square)",
        real(f"{out}_norm", 1 / side),
        integers(f"{out}_blocks", (-1, side, side)),
    ]
    whole = width // block * block
    if whole == width:
        return "\n".join([*lines, *_blocks(x, out, out)])
    parts = [("", (0, whole)), ("backward" if inverse else "forward", (width - block, width))]
    (one, first), (other, last) = reversed(parts) if inverse else parts
    return "\n".join(
        [
            *lines,
            *_part(x, f"{out}_first", out, first, width, one),
            *_part(f"{out}_first", f"{out}_last", out, last, width, other),
            f"{out} = Identity ({out}_last)",
        ]
    )


def _blocks(x: str, out: str, names: str, signs: str = "") -> list[str]:
    """H X H over √B of each block as a square X, which is H of order B, a Kronecker product, over
    the block. ``signs``: ``forward`` for bent signs before it, which as a square are H of order √B,
    ``backward`` for those behind it."""
    before, behind = f"{out}_squares", f"{out}_scaled"
    given, last = before, behind
    lines = []
    if signs == "forward":
        lines, given = [f"{out}_signed = Mul ({before}, {names}_matrix)"], f"{out}_signed"
    more = [f"{out}_signed = Mul ({behind}, {names}_matrix)"] if signs == "backward" else []
    last = f"{out}_signed" if more else behind
    return [
        f"{out}_shape = Shape ({x})",
        f"{before} = Reshape ({x}, {names}_blocks)",
        *lines,
        f"{out}_columns = MatMul ({names}_matrix, {given})",
        f"{out}_sums = MatMul ({out}_columns, {names}_matrix)",
        f"{behind} = Mul ({out}_sums, {names}_norm)",
        *more,
        f"{out} = Reshape ({last}, {out}_shape)",
    ]


def _part(x: str, out: str, names: str, span: tuple[int, int], width: int, signs: str) -> list[str]:
    """The channels of ``span`` rotated, the others as they are."""
    sizes = (span[0], span[1] - span[0], width - span[1])
    parts = [f"{out}_{place}" for place, size in enumerate(sizes) if size]
    inside = parts[int(sizes[0] > 0)]
    joined = ", ".join(f"{name}_turned" if name == inside else name for name in parts)
    return [
        integers(f"{out}_sizes", tuple(size for size in sizes if size)),
        f"{', '.join(parts)} = Split <axis: int = -1> ({x}, {out}_sizes)",
        *_blocks(inside, f"{inside}_turned", names, signs),
        f"{out} = Concat <axis: int = -1> ({joined})",
    ]


def _block_hadamard(attributes: Attributes, present: frozenset[str]) -> str:
    block, width = int(attributes["block"]), int(attributes["width"])
    return rotated("x", "y", block, width, inverse=bool(attributes["inverse"]))


OPERATORS = (
    Operator(
        "BlockHadamard",
        ("x",),
        ("y: float",),
        {"block": int, "width": int},
        _block_hadamard,
        defaults={"inverse": 0},
    ),
)
