"""The fixtures `model` and `folder` of a small decoder."""

from __future__ import annotations

from tests.support.small_decoder import folder, model

__all__ = ["folder", "model"]
