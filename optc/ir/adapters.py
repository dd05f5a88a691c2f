"""Where a ragged-step model says what room it has for adapters."""

from __future__ import annotations

#: Metadata key: JSON ``{"max": 8, "rank": 16, "modules": [{"k", "n", "parts": [{"name", "start",
#: "stop"}]}]}``; module i has the inputs ``adapter_a.i`` and ``adapter_b.i``.
ADAPTERS_METADATA = "optc.adapters"
