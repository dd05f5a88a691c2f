"""The parts of a paged attention's body whose latest tokens are read from pools of their own.

A row reads the latest ``recent`` tokens that it sees, itself included, from the recent pools, which
are int8, and those before from the others: the residual of KIVI (Liu et al., arXiv:2402.02750), but
by distance, so that no row depends on how a step is cut. Both are one softmax.
"""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, integer, real

#: What pools of the latest tokens hold.
RECENT_TYPE = "int8"


def is_recent(attributes: Attributes) -> list[str]:
    """True if a row reads a column from the recent pools: [T, M]."""
    return [
        integer("recent_tokens", int(attributes["recent"])),
        "is_recent = Less (distance, recent_tokens)",
    ]


def products() -> list[str]:
    """``products`` [Hkv, G * T, M] of queries and keys, each from the pool that it is read from."""
    return [
        "far_products = MatMul (q_kept_rows, keys)",
        "recent_keys = Transpose <perm: ints = [0, 2, 1]> (recent_k_seen)",
        "recent_products = MatMul (q_kept_rows, recent_keys)",
        "products_shape = Shape (far_products)",
        "far_by_row = Reshape (far_products, score_shape)",
        "recent_by_row = Reshape (recent_products, score_shape)",
        "products_by_row = Where (is_recent, recent_by_row, far_by_row)",
        "products = Reshape (products_by_row, products_shape)",
    ]


def values() -> list[str]:
    """``values`` [Hkv, G * T, Dv]: those of both pools, weighted by ``weights``."""
    return [
        real("no_weight", 0.0),
        "far_weights = Where (is_recent, no_weight, weights)",
        "recent_weights = Where (is_recent, weights, no_weight)",
        "far_rows = Reshape (far_weights, product_shape)",
        "recent_rows = Reshape (recent_weights, product_shape)",
        "far_values = MatMul (far_rows, v_seen)",
        "recent_values = MatMul (recent_rows, recent_v_seen)",
        "values = Add (far_values, recent_values)",
    ]
