"""From the ragged step to TensorRT's dialect: passes of this backend's own."""

from __future__ import annotations

from optc.backends.tensorrt.legalize.legalize import Legalized, legalize

__all__ = ["Legalized", "legalize"]
