"""The tokens that rows of an encoder's attention see: all of their sequence, or those nearby.

Masks are run with padding behind one of two sequences, so that it does not matter how a graph makes
them. What was found is cut away: attention is left without a mask, and causal, as later steps know
it; `pack-rows` puts the window and both directions back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import is_op
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, emit, insert, miss, operand, rank, substitute
from optc.passes.canonicalize.encoders.factors import take_factor
from optc.passes.canonicalize.encoders.source import PADDING, Array, Source
from optc.passes.canonicalize.heads import heads_of
from optc.passes.canonicalize.spelled.bounds import SMALL, sizes_of, table_sizes
from optc.passes.canonicalize.spelled.match import Spelled, match
from optc.passes.canonicalize.spelled.region import (
    ForeignError,
    NotRunError,
    Region,
    region_of,
)

#: A token whose score lies so far below the row's own is not seen.
_HIDDEN = -5000.0
#: Tokens of a probe at least; and the sizes of windows that are looked for.
_LEAST, _SMALLEST, _LARGEST = 8 + PADDING, 4, 256


def cut_masks(source: Source, report: PassReport) -> dict[str, int]:
    """Leave attention without masks; its windows by name of the node, 0 where there is none.

    Raises:
        UnsupportedError: Rows of an attention see something else; says what.
    """
    windows: dict[str, int] = {}
    known: dict[ir.Value, int] = {}
    for node in list(source.graph):
        try:
            if is_op(node, "Attention"):
                take_factor(node, report)
                name, window = _standard(source, node, known)
            elif is_op(node, "Softmax"):
                found = match(node)
                if isinstance(found, str):
                    if found:
                        miss(report, node, f"not an attention pattern I know: {found}")
                    continue
                name, window = _spelled(source, node, found)
            else:
                continue
        except ForeignError as error:
            raise UnsupportedError(
                f"not an attention of encoders: {error}",
                where=f"{node.name} ({node.op_type})",
                hint="rows must see all tokens of their text that are no padding, or a window",
            ) from error
        windows[name] = window
        report.add(f"attention, window {window}" if window else "attention")
    return windows


def _standard(source: Source, node: ir.Node, known: dict[ir.Value, int]) -> tuple[str, int]:
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if node.attributes.get_int("is_causal", 0):
        raise ForeignError("it is causal")
    if any(value is not None for value in node.inputs[4:]):
        raise ForeignError("it has a past")
    if mask is None and source.mask is not None:
        raise ForeignError("it sees padding")
    window = 0
    if mask is not None:
        if mask not in known:
            known[mask] = _window(source, region_of(source.graph, mask, None), _heads(node))
        window = known[mask]
        node.replace_input_with(3, None)
    node.attributes["is_causal"] = ir.AttrInt64("is_causal", 1)
    return str(node.name), window


def _heads(node: ir.Node) -> int:
    heads = heads_of(operand(node, 0)) if rank(node.inputs[0]) == 4 else None
    return heads.count if heads else node.attributes.get_int("q_num_heads", 1)


def _spelled(source: Source, softmax: ir.Node, found: Spelled) -> tuple[str, int]:
    """Attention in standard operators becomes one node."""
    heads = heads_of(found.q)
    if heads is None or not heads.tokens_last:
        raise ForeignError("queries are not [batch, heads, tokens, size]")
    region = region_of(source.graph, found.scores, found.products)
    if rank(found.products) != 4:
        raise ForeignError("its products have no axis of heads")
    products = _Products(found.products, heads.count)
    window = _window(source, region, heads.count, products)
    scale = _scale(source, region, heads.count, products)
    last = found.results[0].producer()
    if last is None:
        raise ForeignError("its result is no node's")
    k, perm = found.k
    keys = k
    if perm is not None:
        keys = emit(last, "Transpose", [k], k, {"perm": perm}, [dims(k)[i] for i in perm])
    new = ir.node(
        "Attention", [found.q, keys, found.v], {"scale": scale, "is_causal": 1}, name=softmax.name
    )
    new.outputs[0].type = found.results[0].type
    new.outputs[0].shape = ir.Shape([*dims(found.q)[:3], dims(found.v)[-1]])
    insert(last, new)
    for result in found.results:
        substitute(result, new.outputs[0])
    return str(new.name), window


class _Products:
    """The inputs of a region of scores: products of queries and keys."""

    def __init__(self, value: ir.Value, heads: int) -> None:
        self._value, self._heads = value, heads

    def given(self, tokens: int, values: Array | None = None) -> dict[ir.Value, Array]:
        """Products [2, heads, S, S], zeros unless ``values`` are given."""
        shape = (2, self._heads, tokens, tokens)
        return {self._value: np.zeros(shape, np.float32) if values is None else values}


def _window(source: Source, region: Region, heads: int, products: _Products | None = None) -> int:
    """The window that a region's masks show: tokens less than so far away are seen; 0 is all.

    Raises:
        ForeignError: They show something else.
    """
    of_tables = () if source.patches else table_sizes(region, _LEAST)
    counts = map(source.size, (_LEAST, *_shown_by(region), *of_tables))
    found = {_seen(source, region, count, heads, products) for count in dict.fromkeys(counts)}
    if not source.patches:
        found |= set(_large(source, region, heads, products))
    found.discard(0)
    if len(found) > 1:
        raise ForeignError("it has several windows")
    return found.pop() if found else 0


def _seen(
    source: Source,
    region: Region,
    tokens: int,
    heads: int,
    products: _Products | None,
    given: Mapping[ir.Value, Array] | None = None,
) -> int:
    """The window that so many tokens show."""
    feeds = {} if products is None else products.given(tokens)
    level = _level(source.run(region, tokens, {**feeds, **(given or {})}), heads, tokens)
    both = zip(level, source.lengths(tokens), strict=True)
    return max(_window_of(one[:, :length], length) for one, length in both)


def _large(source: Source, region: Region, heads: int, products: _Products | None) -> Iterator[int]:
    """Windows of more tokens than a probe has: constants with a small number in their place show
    whether they are some."""
    plain = _seen(source, region, _LEAST, heads, products)
    by_size: dict[float, dict[ir.Value, Array]] = {}
    for value, array in sizes_of(region):
        size = abs(float(array.reshape(())))
        by_size.setdefault(size, {})[value] = np.sign(array) * np.full_like(array, SMALL)
    for size, small in by_size.items():
        if size <= _LARGEST:
            continue
        try:
            window = _seen(source, region, _LEAST, heads, products, small)
        except NotRunError:  # a bound of a slice, say
            continue
        if window != plain:
            yield window + int(size) - SMALL


def _level(result: Array, heads: int, tokens: int) -> Array:
    """The values that are added to scores [2, H, S, S]."""
    wide = np.where(result, 0.0, -np.inf) if result.dtype == np.bool_ else np.asarray(result, float)
    try:
        return np.broadcast_to(wide, (2, heads, tokens, tokens))
    except ValueError as error:
        raise ForeignError(f"its mask has shape {list(result.shape)}") from error


def _window_of(level: Array, length: int) -> int:
    """The window of one sequence's rows [H, length, S].

    Raises:
        ForeignError: Rows see padding or miss tokens, or something is added to what they see.
    """
    own = np.diagonal(level[:, :, :length], axis1=1, axis2=2)[:, :, None]
    if not np.isfinite(own).all() or (own < _HIDDEN).any():
        raise ForeignError("a row does not see itself")
    seen = level - own > _HIDDEN
    if seen[:, :, length:].any():
        raise ForeignError("rows see padding")
    seen = seen[:, :, :length]
    if not (seen == seen[0]).all():
        raise ForeignError("heads see different tokens")
    if np.abs(np.where(seen, level[:, :, :length] - own, 0.0)).max() > 1e-3:
        raise ForeignError("a bias is added to scores")
    if seen.all():
        return 0
    window, index = int(seen[0, 0].sum()), np.arange(length)
    if not (seen[0] == (np.abs(index[:, None] - index) < window)).all():
        raise ForeignError("what rows see is no window around them")
    return window


def _shown_by(region: Region) -> Iterator[int]:
    """Numbers of tokens that show the windows that constants of a region may stand for."""
    for value in region.constants:
        tensor = value.const_value
        if tensor is not None and tensor.size == 1:
            size = abs(float(tensor.numpy().reshape(())))
            if _SMALLEST <= size <= _LARGEST and size == int(size):
                yield 2 * int(size) + _LEAST


def _scale(source: Source, region: Region, heads: int, products: _Products) -> float:
    """The factor of products where they are seen."""
    rng, tokens = np.random.default_rng(1), source.size(_LEAST)
    values = rng.uniform(0.5, 2, (2, heads, tokens, tokens)).astype(np.float32)
    plain, turned = (
        _level(source.run(region, tokens, products.given(tokens, given)), heads, tokens)
        for given in (None, values)
    )
    length = source.lengths(tokens)[0]
    gained = (turned - plain)[0, :, :length, :length]
    own = plain[0, :, :length, :length]
    seen = own > _HIDDEN
    scale = float(np.float32(np.median(gained[seen] / values[0][seen])))
    if scale <= 0 or not np.allclose(gained[seen], scale * values[0][seen], rtol=1e-3):
        raise ForeignError("its scores are not proportional to products of queries and keys")
    return scale
