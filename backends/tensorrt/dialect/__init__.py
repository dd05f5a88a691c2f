"""The dialect of ONNX that TensorRT builds as it is meant.

TensorRT's parser takes more than it implements: some inputs and attributes it drops without an
error, some operators it computes slowly without a word. So a model is checked against a list of
what is known to be built as meant, before the parser sees it; what is not listed is refused.
"""

from __future__ import annotations

from optc.backends.tensorrt.dialect.check import check_model, problems

__all__ = ["check_model", "problems"]
