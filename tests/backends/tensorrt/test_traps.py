"""What TensorRT does without a word, beside `test_dialect`; docs/tensorrt.md lists all."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from optc.backends.tensorrt.child import _raise_failures
from optc.backends.tensorrt.dialect import problems
from optc.errors import UnavailableError, UnsupportedError
from tests.backends.tensorrt.graphs import parse

PAGE = Path(__file__).parents[3] / "docs/tensorrt.md"
TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    "op_type",
    [
        *("TRT_Attention", "TRT_QuantizedAttention", "TRT_KVCacheUpdate", "TRT_MoE"),
        *("TRT_DynamicQuantize", "TRT_MXFP8DynamicQuantize", "TRT_MXFP8DequantizeLinear"),
    ],
)
def test_operators_of_its_own_that_have_no_kernel_or_crash_the_builder(op_type: str) -> None:
    model = parse(
        f"""<ir_version: 11, opset_import: ["" : 24, "trt" : 1]>
        g (float16[B,S,64] x) => (float16[B,S,64] y) {{ y = trt.{op_type}(x) }}"""
    )
    assert any(f"trt::{op_type} is refused" in problem for problem in problems(model, ("sm_120",)))


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ('y = ScatterND<reduction: string = "add">(x, at, x)', "reduction=add is not implemented"),
        ("y = com.microsoft.MultiHeadAttention(x)", "is refused: it is not known to be built"),
        ("y = Softmax<axis: int = -1, precision: int = 1>(x)", "precision would be ignored"),
    ],
)
def test_attributes_and_operators_that_would_be_taken_for_others(statement: str, why: str) -> None:
    model = parse(
        f"""<ir_version: 11, opset_import: ["" : 24, "com.microsoft" : 1]>
        g (float16[4,8] x) => (float16[4,8] y) {{ {statement} }}""",
        at=np.zeros((4, 1), np.int64),
    )
    assert any(why in problem for problem in problems(model, ("sm_89",)))


@pytest.mark.parametrize("severity", ["ERROR", "INTERNAL_ERROR"])
def test_an_error_in_the_log_fails_a_build_that_gave_an_engine(severity: str) -> None:
    """As with a platform that is not there: the builder says so, and builds for another."""
    with pytest.raises(UnsupportedError, match="no such platform"):
        _raise_failures(SimpleNamespace(messages=[(severity, "no such  platform")]))
    with pytest.raises(UnavailableError, match="cudaError 35"):
        _raise_failures(SimpleNamespace(messages=[(severity, "needs a GPU (cudaError 35)")]))
    _raise_failures(SimpleNamespace(messages=[("WARNING", "slow")]))


def test_the_page_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)\.(test_\w+)`", PAGE.read_text("utf-8")))
    assert len(named) > 10
    for module, function in named:
        assert f"def {function}(" in (TESTS / f"{module}.py").read_text("utf-8"), function
