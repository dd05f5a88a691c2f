"""What ONNX Runtime makes of operators; whole models are in `test_legalize`."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.backend import NATIVE
from optc.backends.onnxruntime.support import support_of
from optc.ir.functions import DOMAIN, OPERATORS
from optc.target import parse_target

CPU = parse_target("x86-64-v3")
#: Operators that no ragged step holds: of the dense form, and of what this backend itself makes.
_OF_OTHER_FORMS = {"Attention", "SlotAttention"}
#: Nobody has written them down for ONNX Runtime.
_UNKNOWN = {"BlockFp4MatMul"}


@pytest.mark.parametrize("name", sorted(_UNKNOWN | {"Unheard"}))
def test_an_operator_that_nothing_is_written_for_is_refused(name: str) -> None:
    found = support_of(ir.Node(DOMAIN, name, [], name="n"), CPU)
    assert (found.how, found.reason) == (
        "unsupported",
        f"ONNX Runtime has nothing for optc::{name}",
    )


def test_every_other_operator_of_a_step_has_an_answer_of_its_own() -> None:
    for name in set(OPERATORS) - _OF_OTHER_FORMS - _UNKNOWN:
        found = support_of(ir.Node(DOMAIN, name, [], name="n"), CPU)
        assert not found.reason.startswith("ONNX Runtime has nothing"), name
        assert (found == NATIVE) == (not found.reason), name


def test_standard_operators_are_its_own() -> None:
    assert support_of(ir.Node("", "Tanh", [], name="n"), CPU) == NATIVE
