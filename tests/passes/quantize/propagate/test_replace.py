"""How the layers that read one input are rounded, whatever their groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optc.passes.numerics.gptq.factor import factor_of
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.propagate.replace import _Rounders
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.passes.numerics.gptq.test_rows import correlated, weight


@pytest.mark.parametrize("sizes", [(32,), (32, 64), (32, 64, 32)])
def test_each_group_size_has_the_factor_of_the_whole_hessian(sizes: tuple[int, ...]) -> None:
    hessian, rows = correlated(128), weight(9, 128)
    given = hessian.copy()
    rounders = _Rounders(QuantizeWeights(bits=4, group_size=32, method="gptq"), given, set(sizes))
    shape = SimpleNamespace(rows_shape=rows.shape)
    linear: Any = SimpleNamespace(name="q_proj", weight=shape)
    for size in sizes:
        scheme = Scheme(4, size, False)
        round_rows, _ = rounders.of(linear, scheme)
        found = round_rows(rows, scheme, linear.name)
        expected = gptq_rows(rows, factor_of(hessian, size), scheme)
        np.testing.assert_array_equal(found.values, expected.values)
    assert not np.array_equal(given, hessian), "the last factor has its memory"
