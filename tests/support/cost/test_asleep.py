"""Sessions of ONNX Runtime sleep while they wait, with options of the caller's and without."""

from __future__ import annotations

import os

import onnx_ir as ir
import onnxruntime
import pytest

CONTENT = ir.to_proto(
    ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 20]>\ng (float[2] x) => (float[2] y)\n{ y = Abs(x) }'
    )
).SerializeToString()
PLACE = "session.intra_op.allow_spinning"


def own_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    return options


@pytest.mark.parametrize("how", ["none", "second", "named"])
def test_sessions(how: str) -> None:
    own = own_options()
    given = {"none": (), "second": (own,), "named": ()}[how]
    named = {"sess_options": own} if how == "named" else {}
    session = onnxruntime.InferenceSession(CONTENT, *given, **named)
    options = session.get_session_options()
    assert options.get_session_config_entry(PLACE) == "0"
    assert options.intra_op_num_threads == (0 if how == "none" else 3)


def test_variables_are_there_for_processes_too() -> None:
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["TVM_THREAD_POOL_SPIN_COUNT"] == "0"
