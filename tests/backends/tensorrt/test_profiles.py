from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.backend import BuildOptions
from optc.backends.tensorrt.limits import VERIFY_ROWS, slot_length
from optc.backends.tensorrt.profiles import limits_of, profiles_for
from optc.errors import UnsupportedError


def _value(name: str, *dims: int | str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(dims))


def test_profiles_cover_decode_verification_and_prefill() -> None:
    limits = limits_of(BuildOptions(max_context=4096, max_rows=512, max_sequences=16))
    inputs = [_value("tokens", "B", "S"), _value("wanted", "B", "R"), _value("past", "B", 2, 64, 8)]
    decode, verify, prefill = profiles_for(inputs, limits)
    assert decode.shapes["tokens"] == ((1, 1), (2, 1), (16, 1))
    assert verify.shapes["tokens"] == ((1, 1), (2, 4), (16, 8))
    assert prefill.shapes["tokens"] == ((1, 1), (1, 256), (1, 512))
    assert verify.shapes["wanted"] == ((1, 1), (2, 1), (16, 8))
    assert prefill.shapes["past"] == ((1, 2, 64, 8),) * 3


def test_calls_are_no_longer_than_a_sequence() -> None:
    limits = limits_of(BuildOptions(max_context=40, max_rows=512, max_logit_rows=4))
    assert [(one.rows, one.logits) for one in limits] == [(1, 1), (8, 4), (40, 4)]


@pytest.mark.parametrize("context", [1, 16, 40, 512, 4096])
def test_slots_have_room_for_rows_that_are_not_used(context: int) -> None:
    length = slot_length(context)
    assert length % 16 == 0
    assert context + VERIFY_ROWS <= length < context + VERIFY_ROWS + 16


def test_other_dynamic_dimensions_are_refused() -> None:
    limits = limits_of(BuildOptions(max_context=40))
    with pytest.raises(UnsupportedError, match="the input x has the dynamic dimension Smax"):
        profiles_for([_value("x", "B", "Smax")], limits)
