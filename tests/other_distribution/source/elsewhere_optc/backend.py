"""A backend, found by the entry point `optc.backends`: engines of ONNX Runtime."""

from __future__ import annotations

from typing import ClassVar

from optc.backends.onnxruntime import OnnxRuntimeBackend


class ElsewhereBackend(OnnxRuntimeBackend):
    """ONNX Runtime under another name."""

    name: ClassVar[str] = "elsewhere"


BACKEND = ElsewhereBackend()
