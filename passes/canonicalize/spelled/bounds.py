"""Numbers of a mask that few tokens do not show: sizes of windows that are constants or tables."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.passes.canonicalize.spelled.region import Array, ForeignError, Region

#: Stands for the size of a window or chunk that few tokens do not show.
SMALL = 4
#: Most tokens of a window in a table.
_MOST = 2048
#: What compares or divides places of tokens.
_OF_PLACES = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Sub", "Add", "Div", "Mod")


def sizes_of(region: Region) -> Iterator[tuple[ir.Value, Array]]:
    """Constants of one number, above `SMALL`, that places of tokens are compared with, and these;
    and integers below minus that, which bound the other side."""
    for value in region.constants:
        tensor = value.const_value
        if tensor is None or tensor.size != 1:
            continue
        array = tensor.numpy()
        number = float(array.reshape(()))
        other_side = number < 0 and array.dtype.kind == "i"
        readers = {use.node for use in value.uses()} & set(region.nodes)
        between = SMALL < (-number if other_side else number) < 2**31
        if between and any(is_op(node, *_OF_PLACES) for node in readers):
            yield value, array


def table_sizes(region: Region, least: int) -> Iterator[int]:
    """Numbers of tokens, above ``least``, that show what the last row of a table [..., N, N] does
    not see.

    Raises:
        ForeignError: They are too many to try.
    """
    for value in region.constants:
        tensor = value.const_value
        shape = () if tensor is None else tuple(tensor.shape.numpy())
        if tensor is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] <= least:
            continue
        last = tensor.numpy().reshape(-1, *shape[-2:])[0, -1]
        seen = int((last == last[-1]).sum())
        if not least <= seen < len(last):
            continue
        if seen > _MOST:
            raise ForeignError(f"its mask is a table of a window of {seen} tokens")
        yield min(seen + 3, len(last))
