"""The amount of text that passes run through the model."""

from __future__ import annotations

from dataclasses import dataclass

#: Rows that the reference runs at once (`optc.proof.reference.blockwise.BLOCK_ROWS`), which is not
#: imported here: it brings ONNX Runtime.
BLOCK_ROWS = 1024


@dataclass(frozen=True)
class TextShape:
    """Windows of tokens."""

    windows: int
    window_tokens: int

    @property
    def tokens(self) -> int:
        """Of all windows."""
        return self.windows * self.window_tokens

    @property
    def chunk(self) -> int:
        """Tokens that go through a block at once."""
        return min(self.tokens, max(BLOCK_ROWS, self.window_tokens))
