"""From the ragged step to ONNX Runtime's operators: passes of this backend's own."""

from __future__ import annotations

from optc.backends.onnxruntime.legalize.legalize import legalize, legalize_pages

__all__ = ["legalize", "legalize_pages"]
