"""The way of products of queries and keys to their softmax, found by probing with few tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optc.passes.canonicalize.spelled.bounds import SMALL, sizes_of, table_sizes
from optc.passes.canonicalize.spelled.pattern import LEAST, Pattern, pattern_of
from optc.passes.canonicalize.spelled.region import (
    BATCH,
    Array,
    ForeignError,
    NotRunError,
    Region,
)

#: Tokens of probes that show from which distance on what is added to scores stays the same.
_FAR = (512, 2048)


@dataclass(frozen=True)
class Scores:
    """Scores are ``scale`` times products, and what ``pattern`` shows and adds."""

    scale: float
    pattern: Pattern


@dataclass(frozen=True)
class Probe:
    """A region, and how it is started.

    Attributes:
        graph: The whole graph.
        region: From products of queries and keys to their softmax; or a mask.
        heads: Query heads.
        products: What it starts from; None if it is a mask.
        merged: Products are [B*H, S, S] rather than [B, H, S, S].
        causal: Rows see none of what lies behind them besides.
    """

    graph: ir.Graph
    region: Region
    heads: int
    products: ir.Value | None
    merged: bool
    causal: bool

    def scores(self) -> Scores:
        """The effect of the region on scores.

        Raises:
            ForeignError: It is no attention of ours, or cannot be run.
        """
        level = self._run(LEAST)
        pattern = _checked(level)
        scale = 1.0 if self.products is None else self._scale(level)
        found = self._beyond(pattern)
        return Scores(scale, replace(found, biases=self._biases()) if found.biases else found)

    def _biases(self) -> tuple[tuple[float, ...], ...]:
        """The terms by distance [H, N], up to where it changes no more."""
        for tokens in _FAR:
            biases = np.array(_checked(self._run(tokens)).biases)
            differs = np.flatnonzero((biases != biases[:, -1:]).any(axis=0))
            count = int(differs[-1]) + 2 if len(differs) else 1
            if count <= tokens // 2:
                return tuple(tuple(float(one) for one in head) for head in biases[:, :count])
        raise ForeignError(f"what is added to scores still changes {_FAR[-1] // 2} tokens away")

    def _run(
        self,
        tokens: int,
        products: Array | None = None,
        given: Mapping[ir.Value, Array] | None = None,
    ) -> Array:
        """The result [H, S, S] in float64, for products [H, S, S] or zeros."""
        feeds = dict(given or {})
        if self.products is not None:
            each = np.zeros((self.heads, tokens, tokens)) if products is None else products
            both = np.broadcast_to(each, (BATCH, *each.shape)).astype(np.float32)
            feeds[self.products] = both.reshape(-1, *each.shape[1:]) if self.merged else both
        result = self.region.run(self.graph, tokens, feeds)
        if result.dtype == np.bool_:
            result = np.where(result, 0.0, -np.inf)
        wide = np.asarray(result, np.float64)
        if self.merged and wide.ndim == 3 and len(wide) == BATCH * self.heads:
            wide = wide.reshape(BATCH, self.heads, *wide.shape[1:])
        try:
            whole = np.broadcast_to(wide, (BATCH, self.heads, tokens, tokens))
        except ValueError as error:
            raise ForeignError(f"its scores have shape {list(wide.shape)}") from error
        if not np.array_equal(whole[0], whole[1]):
            raise ForeignError("its mask depends on the tokens")
        index = np.arange(tokens)
        return np.where(index > index[:, None], -np.inf, whole[0]) if self.causal else whole[0]

    def _scale(self, level: Array) -> float:
        """The factor of products where they are seen."""
        rng = np.random.default_rng(1)
        products = rng.choice([-1.0, 1.0], level.shape) * rng.uniform(0.5, 2, level.shape)
        seen = level - np.diagonal(level, axis1=1, axis2=2)[:, :, None] > -1.0
        gained = self._run(LEAST, products)[seen] - level[seen]
        scale = float(np.float32(np.median(gained / products[seen])))
        if not np.allclose(gained, scale * products[seen], rtol=1e-3, atol=1e-4 * abs(scale)):
            raise ForeignError("its scores are not proportional to products of queries and keys")
        if scale <= 0:
            raise ForeignError(f"its scores are {scale} times products of queries and keys")
        return scale

    def _beyond(self, pattern: Pattern) -> Pattern:
        """The pattern with a window or chunk that the first probe was too short to show."""
        shown = [
            pattern,
            *(_checked(self._run(tokens)) for tokens in table_sizes(self.region, LEAST)),
        ]
        shown += [
            found
            for value, size in sizes_of(self.region)
            if size > 0 and (found := self._at_size(value, size, pattern))
        ]
        limits = {(one.window, one.chunk) for one in shown} - {(0, 0)}
        if len(limits) > 1:
            raise ForeignError("it has several windows or chunks")
        window, chunk = limits.pop() if limits else (0, 0)
        return replace(pattern, window=window, chunk=chunk)

    def _at_size(self, value: ir.Value, size: Array, pattern: Pattern) -> Pattern | None:
        """The pattern that a constant makes, from what a small number in its place shows; None
        if it makes none."""
        small = np.full_like(size, SMALL)
        try:
            found = _checked(self._run(LEAST, None, {value: small}))
        except NotRunError:  # a bound of a slice, say
            return None
        if (found.window, found.chunk) == (pattern.window, pattern.chunk):
            return None
        more = int(size.reshape(())) - SMALL
        window, chunk = (one and one + more for one in (found.window, found.chunk))
        return replace(pattern, window=window, chunk=chunk)


def _checked(level: Array) -> Pattern:
    found = pattern_of(level)
    if isinstance(found, str):
        raise ForeignError(found)
    return found
