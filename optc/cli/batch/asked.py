"""`Asked`: what a form has to know of a line beside its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optc import SamplingParams
    from optc.runtime.requests.prompts import Prompt
    from optc.runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """The form of answer that a line asked for.

    Attributes:
        prompts: What was to be continued.
        params: How.
        tokenizer: The artifact's; None shows no texts of tokens.
    """

    prompts: Sequence[Prompt]
    params: SamplingParams
    tokenizer: Tokenizer | None

    @property
    def shown(self) -> Callable[[int], str]:
        """The text of one token, of a special one its name."""
        return lambda token: self._decoded([token], skip_special_tokens=False)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._decoded(tokens, skip_special_tokens=True)

    def _decoded(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        if self.tokenizer is None:
            return ""
        return self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
