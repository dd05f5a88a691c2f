"""What several tests of whole engines need."""

from __future__ import annotations

from pathlib import Path

PYCODE = Path(__file__).parents[4] / "examples/models/pycode"
